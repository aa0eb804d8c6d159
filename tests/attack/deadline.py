"""A question that the database does not answer."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.attack.result import Figure
from tests.attack.web import Site

ID = "attack-deadline"
REQUEST_S = 3
LIMIT_S = REQUEST_S + 2


def run(site: Site, *, fast: bool) -> Iterator[Figure]:
    """A table is locked for long; how long does a request last, and what is left of it?"""
    site.store(ID, 3, 10)
    path = f"/api/v1/history/product-instance/{ID}"
    with (
        site.serve(ANNALS_REQUEST_SECONDS=str(REQUEST_S)) as web,
        web.locked("product_instance_aud"),
    ):
        answer = web.get(path, timeout=LIMIT_S + (2 if fast else 25))
        time.sleep(0.5)
        left = web.waiting()
    what = f"deadline {REQUEST_S} s, the table is locked: answer"
    yield Figure(f"{what} {answer.status or 'none'} after", round(answer.seconds, 1), LIMIT_S, "s")
    yield Figure("statements that go on afterwards", left, 0)
