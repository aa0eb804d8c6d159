"""Many expensive questions at once, of one login, and one that the database does not answer."""

import base64
import json
import random
import threading
import time
from collections.abc import Iterator

from tests.attack.web import (
    REQUEST_S,
    Answer,
    Figure,
    Site,
    browser,
    limit,
    slowest,
    together,
)

LONG = "attack-long"
LARGE = "attack-large"
CHEAP = "attack-short"
VERSIONS = 3000
LARGE_VERSIONS = 40
OTHER = {"Authorization": "Basic " + base64.b64encode(b"auditor:auditor").decode()}
API = "/api/v1/history/product-instance"


def repeated(site: Site, *, fast: bool) -> Iterator[Figure]:
    """What another login waits for while many clients of one repeat blames of 3,000 versions,
    comparisons of two large documents, and pages of them."""
    site.store(LONG, VERSIONS, 100)
    site.store(CHEAP, 3, 10)
    site.store_all(LARGE, _large_documents())
    blames = f"a blame of {VERSIONS} versions"
    attacks = [(6, blames, f"{API}/{LONG}/blame")]
    if not fast:
        attacks.append((40, blames, attacks[0][2]))
        attacks.append((40, "a page of 100 large versions", f"{API}/{LARGE}?pageSize=100"))
    last = LARGE_VERSIONS - 1
    attacks.append(
        (
            12 if fast else 40,
            "a comparison of two large versions",
            f"{API}/{LARGE}/compare?from=0&to={last}",
        )
    )
    cheap = f"{API}/{CHEAP}?pageSize=1"
    with site.serve() as web:
        most = limit(lambda: web.get(cheap, headers=OTHER), fast)
        for count, what, expensive in attacks:
            over = threading.Event()

            def ask(over: threading.Event = over, expensive: str = expensive) -> None:
                while not over.is_set():
                    if web.get(expensive, timeout=300).status != 200:
                        time.sleep(0.1)

            with together(count, ask):
                try:
                    time.sleep(0.5)
                    alive = slowest(lambda: web.get("/healthz"), 2 if fast else 8)
                    other = slowest(lambda: web.get(cheap, headers=OTHER), 2 if fast else 8)
                finally:
                    over.set()
            clients = f"{count} clients that repeat {what}"
            yield Figure(f"{clients}: slowest /healthz", alive, most, "s")
            yield Figure(f"{clients}: slowest short timeline", other, most, "s")


def colleague(site: Site, *, fast: bool) -> Iterator[Figure]:
    """What a colleague sees, who opens pages of an application in a browser, while a program of
    one login asks 24 questions at a time and sends each again as soon as it is answered."""
    site.store(LONG, VERSIONS, 100)
    site.store(CHEAP, 3, 10)
    attacks = [
        ("blames of 3,000 versions", f"{API}/{LONG}/blame"),
        ("whole applications", f"/api/v1/applications/{LONG}/history?pageSize=500"),
    ]
    with site.serve() as web:
        other = browser(web, "auditor")

        def page() -> Answer:
            began = time.monotonic()
            found = other.get(f"http://127.0.0.1:{web.port}/admin/applications/{CHEAP}/")
            return Answer(found.status_code, time.monotonic() - began, {}, found.content)

        most = limit(page, fast)
        for what, address in attacks[: 1 if fast else None]:
            over = threading.Event()
            wrong: list[Answer] = []

            def ask(
                over: threading.Event = over,
                wrong: list[Answer] = wrong,
                address: str = address,
            ) -> None:
                while not over.is_set():
                    answer = web.get(address, timeout=300)
                    busy = answer.status == 503 and b'"busy"' in answer.body
                    if busy and "retry-after" in answer.headers:
                        time.sleep(0.1)
                    elif answer.status == 503 and not busy:  # too long, on a slow machine
                        continue
                    elif answer.status != 200:
                        wrong.append(answer)

            pages = []
            with together(24, ask):
                try:
                    time.sleep(0.5)
                    for _ in range(12 if fast else 60):
                        pages.append(page())
                        time.sleep(0.1)
                finally:
                    over.set()
            said = f"24 {what} at a time: "
            refused = sum(each.status != 200 for each in pages)
            yield Figure(f"{said}refused pages of a colleague, of {len(pages)}", refused, 0)
            slow = round(max(each.seconds for each in pages), 3)
            yield Figure(f"{said}slowest page of the colleague", slow, most, "s")
            yield Figure(
                f"{said}answers but 200, too long, and busy with Retry-After", len(wrong), 0
            )


def _large_documents() -> Iterator[str]:
    """Versions of 800 KB, whose lists are in another order in each."""
    chance = random.Random(1)
    items: list[dict[str, object]] = [
        {"pid": f"p{n}", "name": f"name {n} " + "x" * 20, "sub": [{"k": k} for k in range(8)]}
        for n in range(3000)
    ]
    grid = [[chance.random() for _ in range(3)] for _ in range(1500)]
    for _ in range(LARGE_VERSIONS):
        items = [{**item, "v": chance.random()} for item in items]
        chance.shuffle(items)
        chance.shuffle(grid)
        yield json.dumps({"items": items, "grid": grid})


def deadline(site: Site, *, fast: bool) -> Iterator[Figure]:
    """A table is locked for long; how long does a request last, and what is left of it?"""
    site.store("attack-deadline", 3, 10)
    path = f"{API}/attack-deadline"
    with (
        site.serve(ANNALS_REQUEST_SECONDS=str(REQUEST_S)) as web,
        web.locked("product_instance_aud"),
    ):
        answer = web.get(path, timeout=REQUEST_S + (4 if fast else 27))
        time.sleep(0.5)
        left = web.waiting()
    what = f"deadline {REQUEST_S} s, the table is locked: answer"
    yield Figure(
        f"{what} {answer.status or 'none'} after", round(answer.seconds, 1), REQUEST_S + 2, "s"
    )
    yield Figure("statements that go on afterwards", left, 0)
