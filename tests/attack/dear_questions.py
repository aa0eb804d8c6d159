"""Many dear questions at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from tests.attack.result import Figure
from tests.attack.web import Site, slowest, together

LONG = "attack-long"
CHEAP = "attack-short"
VERSIONS = 3000
LIMIT_S = 2


def run(site: Site, *, fast: bool) -> Iterator[Figure]:
    """Six and forty blames of 3,000 versions at once, and what others wait for meanwhile."""
    site.store(LONG, VERSIONS, 100)
    site.store(CHEAP, 3, 10)
    dear = f"/api/v1/history/product-instance/{LONG}/blame"
    cheap = f"/api/v1/history/product-instance/{CHEAP}?pageSize=1"
    with site.serve() as web:
        for count in (6,) if fast else (6, 40):
            over = threading.Event()

            def ask(over: threading.Event = over) -> None:
                while not over.is_set():
                    if web.get(dear, timeout=120).status != 200:
                        time.sleep(0.1)

            with together(count, ask):
                try:
                    time.sleep(0.5)
                    alive = slowest(lambda: web.get("/healthz"), 2 if fast else 8)
                    other = slowest(lambda: web.get(cheap), 2 if fast else 8)
                finally:
                    over.set()
            blames = f"{count} clients that repeat a blame of {VERSIONS} versions"
            yield Figure(f"{blames}: slowest /healthz", alive, LIMIT_S, "s")
            yield Figure(f"{blames}: slowest short timeline", other, LIMIT_S, "s")
