"""Clients that ask something slow and close the connection."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.attack.result import Figure
from tests.attack.web import Site, close, slowest

CLIENTS = 16  # as many as there are threads
ID = "attack-leaves"
LEFT_S = 2


def run(site: Site, *, fast: bool) -> Iterator[Figure]:
    """A locked table makes every question slow. What is left of them two seconds later?"""
    site.store(ID, 3, 10)
    path = f"/api/v1/history/product-instance/{ID}"
    with site.serve() as web, web.locked("product_instance_aud"):
        held = [web.ask(path) for _ in range(CLIENTS)]
        end = time.monotonic() + 10
        while web.waiting() < CLIENTS and time.monotonic() < end:
            time.sleep(0.05)
        begun = web.waiting()
        close(held)
        time.sleep(LEFT_S)
        left = web.waiting()
        alive = slowest(lambda: web.get("/healthz", timeout=10), 2 if fast else 5)
    yield Figure(f"{begun} clients that left: statements still waiting after {LEFT_S} s", left, 0)
    yield Figure("slowest /healthz then", alive, 2, "s")
