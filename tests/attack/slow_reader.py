"""Clients that ask for much and do not read the answer."""

from __future__ import annotations

from collections.abc import Iterator

from tests.attack.result import Figure
from tests.attack.web import Site, close, slowest

CLIENTS = 40
LIMIT_S = 2
BIG = "attack-big"


def run(site: Site, *, fast: bool) -> Iterator[Figure]:
    """Answers of some MB that nobody reads; another API request meanwhile."""
    site.store(BIG, 100, 100, 640)
    path = f"/api/v1/history/product-instance/{BIG}?pageSize=100&include=entity"
    with site.serve(ANNALS_CLIENT_SECONDS="3") as web:
        held = [web.ask(path, receive_buffer=4096) for _ in range(CLIENTS)]
        try:
            slowest(lambda: web.get("/healthz", timeout=20), 3)  # until the answers are computed
            seconds = 3 if fast else 15
            alive = slowest(lambda: web.get("/healthz", timeout=20), seconds)
            other = slowest(lambda: web.get("/api/v1/completeness", timeout=20), seconds)
        finally:
            close(held)
    yield Figure(f"{CLIENTS} answers that nobody reads: slowest /healthz", alive, LIMIT_S, "s")
    yield Figure("slowest request of another client meanwhile", other, LIMIT_S, "s")
