"""Documents nested deeper than Python recurses: every page and call shows and compares them."""

import json

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.db.screens import A1, WHOLE
from tests.db.store import Store

BASE = "/api/v1/history/product-instance/A1"
CALLS = [
    *(BASE, f"{BASE}?path=/top", f"{BASE}/versions/1", f"{BASE}/compare?from=0&to=1"),
    *(f"{BASE}/at?time=2999-01-01", f"{BASE}/blame", f"{BASE}/fields?path=/deep"),
    "/api/v1/applications/A1/history",
    "/api/v1/applications/A1/at?time=2999-01-01",
]
PAGES = [A1, WHOLE, f"{A1}versions/1/", f"{A1}versions/1/?download=1", f"{A1}state/"]


def nested(levels: int, inside: str, kind: str) -> str:
    first, last = {"object": ('{"a":', "}"), "list": ("[", "]"), "items": ('[{"x":', "},{}]")}[kind]
    return f'{{"top": 1, "deep": {first * levels}{inside}{last * levels}}}'


@pytest.fixture(params=["object", "list", "items"])
def kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.mark.parametrize("levels", [60, 150, 450, 900, 2500])
def test_every_call_and_page(store: Store, support: Client, levels: int, kind: str) -> None:
    store.add("A1", 0, nested(levels, "1", kind), 0)
    store.add("A1", 1, nested(levels, "2", kind), 1)
    store.add("A1", 2, nested(levels, "2", kind).replace('"top": 1', '"top": 3'), 2)
    support.raise_request_exception = False
    for call in [*PAGES, f"{A1}compare/?from=0&to=1", f"{A1}?path=/deep", *CALLS]:
        response = support.get(call)
        assert response.status_code == 200, (call, response.content[:200])
    shown = support.get(f"{A1}versions/1/?download=1").content.decode()
    assert "".join(shown.split()) == nested(levels, "2", kind).replace(" ", "")


@pytest.mark.parametrize("key", ["x" * 301, "я" * 1000, "x" * 7000])
def test_a_key_path_that_the_api_gave_is_taken(store: Store, client: Client, key: str) -> None:
    client.force_login(User.objects.get(username="auditor"))
    for version in range(3):
        store.add("A1", version, {key: [{"pid": key, "n": version // 2}], "x": version}, version)
    found = json.loads(client.get(f"{BASE}/blame").content)["data"]["blame"]
    path = next(leaf["keyPath"] for leaf in found if leaf["path"].endswith("/n"))
    assert len(path) > 2 * len(key)
    kept = json.loads(client.get(BASE, {"path": path}).content)["data"]["history"]
    assert [version["version"] for version in kept] == [2]
    values = json.loads(client.get(f"{BASE}/fields", {"path": path}).content)["data"]["values"]
    assert [value["version"] for value in values] == [2, 0]
