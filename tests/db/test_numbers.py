"""Numbers from the snapshot to the API: every digit, in PostgreSQL's notation."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.db.store import Store

SAME = [
    "0", "7", "-7", "1.10", "-1.10", "0.000", "12345678901234567890.10", "0.0000001", "0.000001",
    "1" * 5_000, "0." + "0" * 400 + "1",
]  # fmt: skip
# An exponent is written out, and zero has no sign.
OTHERWISE = {
    "1e2": "100",
    "1E+2": "100",
    "1.50e1": "15.0",
    "1.5e3": "1500",
    "1e-7": "0.0000001",
    "12.30E-1": "1.230",
    "1e30": "1" + "0" * 30,
    "-0": "0",
    "-0.0": "0.0",
    "0e5": "0",
}


@pytest.mark.parametrize("given, expected", [*zip(SAME, SAME, strict=True), *OTHERWISE.items()])
@pytest.mark.parametrize("call", ["A1", "A1/versions/1", "A1/at?time=2100-01-01"])
def test_a_number_comes_out(
    store: Store, client: Client, given: str, expected: str, call: str
) -> None:
    store.add("A1", 1, f'{{"n":{given}}}', 0)
    client.force_login(User.objects.get(username="auditor"))
    answer = client.get(f"/api/v1/history/product-instance/{call}")
    assert answer.status_code == 200
    assert re.findall(rb'"n": ?([-+.0-9eE]+)', answer.content) == [expected.encode()]
