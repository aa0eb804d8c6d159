"""Clients that hold connections: with a request that is never finished, sent byte by byte, or whose
answer nobody reads."""

import contextlib
import threading
import time
from collections.abc import Iterator

from tests.attack.web import Figure, Site, close, limit, request, slowest, still_open

CLIENTS = 40
# How long the proxy waits here.
HEADER_S = 1
BIG = "attack-big"


def half_open(site: Site, *, fast: bool) -> Iterator[Figure]:
    """40 and 400 of them, silent or with half a request line, against /healthz."""
    for count in (40,) if fast else (40, 400):
        for begun in (b"", b"GET /healthz HTTP/1.1\r\nHost: loc"):
            with site.serve() as web:
                most = limit(lambda: web.get("/healthz", timeout=10), fast)
                held = [web.connect() for _ in range(count)]
                try:
                    for each in held:
                        each.sendall(begun)
                    alive = slowest(lambda: web.get("/healthz", timeout=10), 1 if fast else 10)
                finally:
                    close(held)
            what = "half a request" if begun else "silent"
            yield Figure(f"{count} connections, {what}: slowest /healthz", alive, most, "s")


def slow_loris(site: Site, *, fast: bool) -> Iterator[Figure]:
    """/healthz meanwhile, and whether the server ends such connections."""
    with site.serve() as web:
        most = limit(lambda: web.get("/healthz", timeout=10), fast)
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
            seconds = HEADER_S + 4 if fast else 15
            began = time.monotonic()
            alive = slowest(lambda: web.get("/healthz", timeout=10), seconds)
            left = still_open(held)
            waited = round(time.monotonic() - began)
        finally:
            done.set()
            dripping.join()
            close(held)
    yield Figure(f"{CLIENTS} clients, a byte a second: slowest /healthz", alive, most, "s")
    yield Figure(f"of them still open after {waited} s", left, 0)


def slow_reader(site: Site, *, fast: bool) -> Iterator[Figure]:
    """Answers of some MB that nobody reads; another API request meanwhile."""
    site.store(BIG, 100, 100, 640)
    path = f"/api/v1/history/product-instance/{BIG}?pageSize=100&include=entity"
    with site.serve() as web:
        most = limit(lambda: web.get("/api/v1/completeness", timeout=20), fast)
        held = [web.ask(path, receive_buffer=4096) for _ in range(CLIENTS)]
        try:
            slowest(lambda: web.get("/healthz", timeout=20), 3)  # until the answers are computed
            seconds = 3 if fast else 15
            alive = slowest(lambda: web.get("/healthz", timeout=20), seconds)
            other = slowest(lambda: web.get("/api/v1/completeness", timeout=20), seconds)
        finally:
            close(held)
    yield Figure(f"{CLIENTS} answers that nobody reads: slowest /healthz", alive, most, "s")
    yield Figure("slowest request of another client meanwhile", other, most, "s")
