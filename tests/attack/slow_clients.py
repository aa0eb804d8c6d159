"""Attacks by clients that keep connections open.

They never finish a request, or send it byte by byte, or do not read the answer.
"""

import contextlib
import threading
import time
from collections.abc import Iterator

from tests.attack.web import (
    AttackedSite,
    AttackFigure,
    choose_limit,
    close_connections,
    count_open,
    make_request,
    measure_slowest,
)

CLIENTS = 40
# How long the proxy of the attacked site waits for the headers of a request.
HEADER_SECONDS = 1
BIG_DOCUMENT = "attack-big"


def attack_half_open(site: AttackedSite, *, fast: bool) -> Iterator[AttackFigure]:
    """Open many connections that send nothing or half a request.

    Meanwhile, measure how long /healthz takes to answer. The attack opens 40 connections. Without
    `fast`, it repeats with 400 connections.
    """
    for count in (40,) if fast else (40, 400):
        for first_bytes in (b"", b"GET /healthz HTTP/1.1\r\nHost: loc"):
            with site.run_web() as web:
                limit_seconds = choose_limit(lambda: web.send_request("/healthz", timeout=10), fast)
                connections = [web.open_connection() for _ in range(count)]
                try:
                    for connection in connections:
                        connection.sendall(first_bytes)
                    slowest_health = measure_slowest(
                        lambda: web.send_request("/healthz", timeout=10), 1 if fast else 10
                    )
                finally:
                    close_connections(connections)
            subject = "half a request" if first_bytes else "silent"
            yield AttackFigure(
                f"{count} connections, {subject}: slowest /healthz",
                slowest_health,
                limit_seconds,
                "s",
            )


def attack_slowly(site: AttackedSite, *, fast: bool) -> Iterator[AttackFigure]:
    """Send requests byte by byte, and count the connections that stay open.

    Meanwhile, measure how long /healthz takes to answer. With `fast`, the attack is shorter.
    """
    with site.run_web() as web:
        limit_seconds = choose_limit(lambda: web.send_request("/healthz", timeout=10), fast)
        connections = [web.open_connection() for _ in range(CLIENTS)]
        text = make_request("/api/v1/completeness", f"X-Padding: {'a' * 1000}")
        is_over = threading.Event()

        def send_slowly() -> None:
            for byte in text:
                for connection in connections:
                    with contextlib.suppress(OSError):
                        connection.send(bytes([byte]))
                if is_over.wait(1):
                    return

        dripper = threading.Thread(target=send_slowly, daemon=True)
        dripper.start()
        try:
            seconds = HEADER_SECONDS + 4 if fast else 15
            began = time.monotonic()
            slowest_health = measure_slowest(
                lambda: web.send_request("/healthz", timeout=10), seconds
            )
            open_count = count_open(connections)
            waited_seconds = round(time.monotonic() - began)
        finally:
            is_over.set()
            dripper.join()
            close_connections(connections)
    yield AttackFigure(
        f"{CLIENTS} clients, a byte a second: slowest /healthz", slowest_health, limit_seconds, "s"
    )
    yield AttackFigure(f"of them still open after {waited_seconds} s", open_count, 0)


def attack_without_reading(site: AttackedSite, *, fast: bool) -> Iterator[AttackFigure]:
    """Request answers of some MB without reading them, and measure requests of a second client."""
    site.store_application(BIG_DOCUMENT, 100, 100, 640)
    path = f"/api/v1/history/product-instance/{BIG_DOCUMENT}?pageSize=100&include=entity"
    with site.run_web() as web:
        limit_seconds = choose_limit(
            lambda: web.send_request("/api/v1/completeness", timeout=20), fast
        )
        connections = [web.open_request(path, receive_buffer=4096) for _ in range(CLIENTS)]
        try:
            # Let the server compute the answers first.
            measure_slowest(lambda: web.send_request("/healthz", timeout=20), 3)
            seconds = 3 if fast else 15
            slowest_health = measure_slowest(
                lambda: web.send_request("/healthz", timeout=20), seconds
            )
            slowest_other = measure_slowest(
                lambda: web.send_request("/api/v1/completeness", timeout=20), seconds
            )
        finally:
            close_connections(connections)
    yield AttackFigure(
        f"{CLIENTS} answers that nobody reads: slowest /healthz", slowest_health, limit_seconds, "s"
    )
    yield AttackFigure(
        "slowest request of another client meanwhile", slowest_other, limit_seconds, "s"
    )
