"""Connections on which a request is begun and never finished."""

from __future__ import annotations

from collections.abc import Iterator

from tests.attack.result import Figure
from tests.attack.web import Site, close, slowest

LIMIT_S = 2


def run(site: Site, *, fast: bool) -> Iterator[Figure]:
    """40 and 400 of them, silent or with half a request line, against /healthz."""
    for count in (40,) if fast else (40, 400):
        for begun in (b"", b"GET /healthz HTTP/1.1\r\nHost: loc"):
            with site.serve() as web:
                held = [web.connect() for _ in range(count)]
                try:
                    for each in held:
                        each.sendall(begun)
                    alive = slowest(lambda: web.get("/healthz", timeout=10), 1 if fast else 10)
                finally:
                    close(held)
            what = "half a request" if begun else "silent"
            yield Figure(f"{count} connections, {what}: slowest /healthz", alive, LIMIT_S, "s")
