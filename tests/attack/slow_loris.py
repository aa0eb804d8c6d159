"""Clients that send a request one byte a second."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from tests.attack.result import Figure
from tests.attack.web import Site, close, request, slowest, still_open

CLIENTS = 40
LIMIT_S = 2
# How long a request may take to arrive, in this attack.
HEADER_S = 3


def run(site: Site, *, fast: bool) -> Iterator[Figure]:
    """/healthz meanwhile, and whether the server ends such connections."""
    with site.serve(ANNALS_CLIENT_SECONDS=str(HEADER_S)) as web:
        held = [web.connect() for _ in range(CLIENTS)]
        text = request("/api/v1/completeness", f"X-Padding: {'a' * 1000}")
        done = threading.Event()

        def drip() -> None:
            for byte in text:
                for each in held:
                    with contextlib.suppress(OSError):
                        each.send(bytes([byte]))
                if done.wait(1):
                    return

        dripping = threading.Thread(target=drip, daemon=True)
        dripping.start()
        try:
            seconds = HEADER_S + 3 if fast else 15
            began = time.monotonic()
            alive = slowest(lambda: web.get("/healthz", timeout=10), seconds)
            left = still_open(held)
            waited = round(time.monotonic() - began)
        finally:
            done.set()
            dripping.join()
            close(held)
    yield Figure(f"{CLIENTS} clients, a byte a second: slowest /healthz", alive, LIMIT_S, "s")
    yield Figure(f"of them still open after {waited} s", left, 0)
