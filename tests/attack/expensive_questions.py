"""Attacks with expensive questions: many at once by one login, and one that waits for a lock."""

import base64
import json
import random
import threading
import time
from collections.abc import Iterator

from tests.attack.web import (
    REQUEST_SECONDS,
    AttackAnswer,
    AttackedSite,
    AttackFigure,
    choose_limit,
    measure_slowest,
    open_browser,
    run_in_threads,
)

LONG_APPLICATION = "attack-long"
LARGE_APPLICATION = "attack-large"
SHORT_APPLICATION = "attack-short"
VERSIONS = 3000
# How long PostgreSQL may take on a busy machine to cancel the statement of an answered request.
MOST_CANCEL_SECONDS = 5.0
LARGE_VERSIONS = 40
OTHER_LOGIN = {"Authorization": "Basic " + base64.b64encode(b"auditor:auditor").decode()}
API = "/api/v1/history/product-instance"


def attack_with_questions(site: AttackedSite, *, fast: bool) -> Iterator[AttackFigure]:
    """Measure how long a second login waits while many clients of one login repeat a question.

    The questions are blames of 3,000 versions, comparisons of two large versions, and pages of
    large versions.
    """
    site.store_application(LONG_APPLICATION, VERSIONS, 100)
    site.store_application(SHORT_APPLICATION, 3, 10)
    site.store_versions(LARGE_APPLICATION, _make_large_documents())
    blames = f"a blame of {VERSIONS} versions"
    attacks = [(6, blames, f"{API}/{LONG_APPLICATION}/blame")]
    if not fast:
        attacks.append((40, blames, attacks[0][2]))
        attacks.append(
            (40, "a page of 100 large versions", f"{API}/{LARGE_APPLICATION}?pageSize=100")
        )
    last_version = LARGE_VERSIONS - 1
    attacks.append(
        (
            12 if fast else 40,
            "a comparison of two large versions",
            f"{API}/{LARGE_APPLICATION}/compare?from=0&to={last_version}",
        )
    )
    cheap = f"{API}/{SHORT_APPLICATION}?pageSize=1"
    with site.run_web() as web:
        limit_seconds = choose_limit(lambda: web.send_request(cheap, headers=OTHER_LOGIN), fast)
        for count, question, expensive in attacks:
            is_over = threading.Event()

            def repeat_question(
                is_over: threading.Event = is_over, expensive: str = expensive
            ) -> None:
                while not is_over.is_set():
                    if web.send_request(expensive, timeout=300).status != 200:
                        time.sleep(0.1)

            with run_in_threads(count, repeat_question):
                try:
                    time.sleep(0.5)
                    slowest_health = measure_slowest(
                        lambda: web.send_request("/healthz"), 2 if fast else 8
                    )
                    slowest_other = measure_slowest(
                        lambda: web.send_request(cheap, headers=OTHER_LOGIN), 2 if fast else 8
                    )
                finally:
                    is_over.set()
            clients = f"{count} clients that repeat {question}"
            yield AttackFigure(f"{clients}: slowest /healthz", slowest_health, limit_seconds, "s")
            yield AttackFigure(
                f"{clients}: slowest short timeline", slowest_other, limit_seconds, "s"
            )


def attack_colleague(site: AttackedSite, *, fast: bool) -> Iterator[AttackFigure]:
    """Measure the pages of a person while a program sends 24 expensive questions at a time.

    The program repeats each question as soon as it is answered. The person opens pages of an
    application in a browser.
    """
    site.store_application(LONG_APPLICATION, VERSIONS, 100)
    site.store_application(SHORT_APPLICATION, 3, 10)
    attacks = [
        ("blames of 3,000 versions", f"{API}/{LONG_APPLICATION}/blame"),
        ("whole applications", f"/api/v1/applications/{LONG_APPLICATION}/history?pageSize=500"),
    ]
    with site.run_web() as web:
        session = open_browser(web, "auditor")

        def open_page() -> AttackAnswer:
            began = time.monotonic()
            response = session.get(
                f"http://127.0.0.1:{web.port}/admin/applications/{SHORT_APPLICATION}/"
            )
            return AttackAnswer(
                response.status_code, time.monotonic() - began, {}, response.content
            )

        limit_seconds = choose_limit(open_page, fast)
        for question, address in attacks[: 1 if fast else None]:
            is_over = threading.Event()
            wrong_answers: list[AttackAnswer] = []

            def repeat_question(
                is_over: threading.Event = is_over,
                wrong_answers: list[AttackAnswer] = wrong_answers,
                address: str = address,
            ) -> None:
                while not is_over.is_set():
                    answer = web.send_request(address, timeout=300)
                    busy = answer.status == 503 and b'"busy"' in answer.body
                    if busy and "retry-after" in answer.headers:
                        time.sleep(0.1)
                    elif answer.status == 503 and not busy:  # took too long on a slow machine
                        continue
                    elif answer.status != 200:
                        wrong_answers.append(answer)

            pages = []
            with run_in_threads(24, repeat_question):
                try:
                    time.sleep(0.5)
                    for _ in range(12 if fast else 60):
                        pages.append(open_page())
                        time.sleep(0.1)
                finally:
                    is_over.set()
            prefix = f"24 {question} at a time: "
            refused = sum(page_answer.status != 200 for page_answer in pages)
            yield AttackFigure(f"{prefix}refused pages of a colleague, of {len(pages)}", refused, 0)
            slowest_page = round(max(page_answer.seconds for page_answer in pages), 3)
            yield AttackFigure(
                f"{prefix}slowest page of the colleague", slowest_page, limit_seconds, "s"
            )
            yield AttackFigure(
                f"{prefix}answers other than 200, too long, or busy with Retry-After",
                len(wrong_answers),
                0,
            )


def _make_large_documents() -> Iterator[str]:
    """Yield snapshots of 800 KB. Each snapshot has the items of the lists in a new random order."""
    random_source = random.Random(1)
    items: list[dict[str, object]] = [
        {"pid": f"p{n}", "name": f"name {n} " + "x" * 20, "sub": [{"k": k} for k in range(8)]}
        for n in range(3000)
    ]
    grid = [[random_source.random() for _ in range(3)] for _ in range(1500)]
    for _ in range(LARGE_VERSIONS):
        items = [{**item, "v": random_source.random()} for item in items]
        random_source.shuffle(items)
        random_source.shuffle(grid)
        yield json.dumps({"items": items, "grid": grid})


def attack_deadline(site: AttackedSite, *, fast: bool) -> Iterator[AttackFigure]:
    """Lock a table, and measure how long a request waits for it before it is answered.

    Also count the statements of the request that still wait in PostgreSQL after the answer.
    """
    site.store_application("attack-deadline", 3, 10)
    path = f"{API}/attack-deadline"
    with (
        site.run_web(ANNALS_REQUEST_SECONDS=str(REQUEST_SECONDS)) as web,
        web.lock_table("product_instance_aud"),
    ):
        response = web.send_request(path, timeout=REQUEST_SECONDS + (4 if fast else 27))
        until = time.monotonic() + MOST_CANCEL_SECONDS
        while (waiting_statements := web.count_waiting()) and time.monotonic() < until:
            time.sleep(0.1)
    subject = f"deadline {REQUEST_SECONDS} s, the table is locked: answer"
    yield AttackFigure(
        f"{subject} {response.status or 'none'} after",
        round(response.seconds, 1),
        REQUEST_SECONDS + 2,
        "s",
    )
    yield AttackFigure("statements that still wait afterwards", waiting_statements, 0)
