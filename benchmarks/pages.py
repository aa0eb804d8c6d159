"""`python -m benchmarks pages`: the support screens, usual documents and hard ones.

A page is sent whole when it is made, so that its first entry comes with the last: the time is that
of the whole page, without the browser's. Its weight is that of its HTML.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import psycopg
from rich.console import Console
from rich.table import Table

from benchmarks.harness import manage, new_database, print_json, use
from benchmarks.timeline_data import _environment
from history.daily import days
from history.entities import BY_NAME, root

NAME: Final = "annals_pages"
ROOT, CHILD = root(), BY_NAME["product-task"]
MOST_MS, MOST_KB = 1000, 1000
USUAL: Final = {f"field{number}": f"value {number}" for number in range(60)}


def run(rounds: int = 3, as_json: bool = False) -> int:
    """Print the fastest of some rounds, for each document and page."""
    with new_database(NAME) as conninfo:
        manage(_environment(conninfo, 90), "migrate")
        use(conninfo)
        with psycopg.connect(conninfo, autocommit=True) as plain:
            _fill(plain)
            plain.execute("VACUUM (ANALYZE)")
        figures = _measure(rounds)
    met = all(each["met"] for each in figures)
    if as_json:
        print_json("pages", {"pages": figures}, met)
        return 0 if met else 1
    table = Table("document", "page", "ms", "ms of the web", "KB", "")
    for each in figures:
        word = "" if each["met"] else "OVER"
        names = (each["document"], each["page"])
        table.add_row(*names, *(f"{each[one]:.0f}" for one in ("ms", "cpu_ms", "kb")), word)
    Console().print(table)
    return 0 if met else 1


def _documents() -> dict[str, list[Any]]:
    """The versions of each document, whose id is the name."""
    word = "слово " * 85_000  # 1 MB
    items = [[{"pid": f"{n:022d}", "sum": f"{n + of}.00"} for n in range(3_000)] for of in (0, 1)]
    deep = ['{"a":' * 400 + str(of) + "}" * 400 for of in (0, 1)]
    wide = {f"field{number}": "x" * 500 for number in range(66)}
    return {
        "usual": [{**USUAL, "rate": str(number)} for number in range(40)],
        "3000-items": [{"items": each} for each in items],
        "1MB-text": [{"text": word + last} for last in ("конец", "другой конец")],
        "400-levels": [json.loads(each) for each in deep],
        "500-of-36KB": [{**wide, "rate": str(number)} for number in range(500)],
        "20000-children": [USUAL],
    }


def _fill(plain: psycopg.Connection[Any]) -> None:
    start = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    start -= timedelta(days=9)
    for number in range(10):
        for entity in (ROOT, CHILD):
            days.create(plain, entity.table, (start + timedelta(days=number)).date())
    columns = "id, version, data, updated_at, client_id, author, type"
    with plain.cursor() as cursor:
        for id, versions in _documents().items():
            for version, data in enumerate(versions):
                made = start + timedelta(minutes=20 * version)
                row = [id, version, json.dumps(data), made, "top-crm", "m.ivanov", int(version > 0)]
                cursor.execute(
                    f"INSERT INTO {ROOT.table} ({columns}) VALUES (%s, %s, %s, %s, %s, %s, %s)", row
                )
        cursor.execute(
            f"INSERT INTO {CHILD.table} ({columns}, product_instance_id)"
            " SELECT 'T' || n, 0, %s, %s + n * interval '1 second', 'top-crm', NULL, 0,"
            " '20000-children' FROM generate_series(1, 20000) AS n",
            [json.dumps({"name": "Проверить документы", "status": "NEW"}), start],
        )


def _measure(rounds: int) -> list[dict[str, Any]]:
    from django.contrib.auth.models import User
    from django.test import Client

    client = Client(headers={"host": "localhost"})
    client.force_login(User.objects.get(username="support"))
    found = []
    client.get("/admin/history/nothing/")  # the first page imports
    for id, versions in _documents().items():
        card, last = f"/admin/history/{ROOT.name}/{id}/", len(versions) - 1
        pages = {
            "application": f"/admin/applications/{id}/",
            "card": card,
            "who changed": f"{card}state/",
            "moment": f"/admin/at/{id}/?time=today",
            "version": f"{card}versions/{last}/",
            "JSON": f"{card}versions/{last}/?as=json",
            **({"compare": f"{card}compare/?from=0&to={last}"} if last else {}),
        }
        for name, address in pages.items():
            times, used = [], []
            for _ in range(rounds):
                began, before = time.perf_counter(), time.process_time()
                answer = client.get(address)
                times.append(time.perf_counter() - began)
                used.append(time.process_time() - before)
                assert answer.status_code == 200, (address, answer.status_code)
            ms, kb = min(times) * 1000, len(answer.content) / 1000
            found.append(
                {"document": id, "page": name, "ms": round(ms), "cpu_ms": round(min(used) * 1000),
                 "kb": round(kb, 1), "met": ms <= MOST_MS and kb <= MOST_KB}
            )  # fmt: skip
    return found
