"""`python -m benchmarks pages`: measures the support screens, for usual and for hard documents.

The time of a page ends when its whole HTML has arrived. The browser's work is not included. The
limits are LIMIT_MS for the time and LIMIT_KB for the size of the HTML.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import psycopg
from rich.console import Console
from rich.table import Table

from benchmarks.harness import create_database, print_json, run_command, use_database
from benchmarks.timeline_data import _make_environment
from history.kinds.entities import BY_NAME, get_root
from history.store.days import days

NAME: Final = "annals_pages"
ROOT, CHILD = get_root(), BY_NAME["product-task"]
LIMIT_MS, LIMIT_KB = 1000, 1000
USUAL_SNAPSHOT: Final = {f"field{number}": f"value {number}" for number in range(60)}


def run(rounds: int = 3, as_json: bool = False) -> int:
    """Measure each page `rounds` times, print the fastest times, and return the exit code."""
    with create_database(NAME) as conninfo:
        run_command(_make_environment(conninfo, 90), "migrate")
        use_database(conninfo)
        with psycopg.connect(conninfo, autocommit=True) as plain:
            _fill_database(plain)
            plain.execute("VACUUM (ANALYZE)")
        figures = _measure_pages(rounds)
    is_met = all(figure["met"] for figure in figures)
    if as_json:
        print_json("pages", {"pages": figures}, is_met)
        return 0 if is_met else 1
    table = Table("document", "page", "ms", "ms of the web", "KB", "")
    for figure in figures:
        remark = "" if figure["met"] else "OVER"
        names = (figure["document"], figure["page"])
        table.add_row(
            *names, *(f"{figure[column]:.0f}" for column in ("ms", "cpu_ms", "kb")), remark
        )
    Console().print(table)
    return 0 if is_met else 1


def _make_documents() -> dict[str, list[Any]]:
    """Return the snapshots of all versions of each document, by id."""
    word = "слово " * 85_000  # 1 MB
    item_lists = [
        [{"pid": f"{n:022d}", "sum": f"{n + seed}.00"} for n in range(3_000)] for seed in (0, 1)
    ]
    nested_texts = ['{"a":' * 400 + str(seed) + "}" * 400 for seed in (0, 1)]
    wide = {f"field{number}": "x" * 500 for number in range(66)}
    return {
        "usual": [{**USUAL_SNAPSHOT, "rate": str(number)} for number in range(40)],
        "3000-items": [{"items": items_of_version} for items_of_version in item_lists],
        "1MB-text": [{"text": word + ending} for ending in ("конец", "другой конец")],
        "400-levels": [json.loads(text) for text in nested_texts],
        "500-of-36KB": [{**wide, "rate": str(number)} for number in range(500)],
        "20000-children": [USUAL_SNAPSHOT],
    }


def _fill_database(plain: psycopg.Connection[Any]) -> None:
    start = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    start -= timedelta(days=9)
    for number in range(10):
        for entity in (ROOT, CHILD):
            days.create_partition(plain, entity.table, (start + timedelta(days=number)).date())
    columns = "id, version, data, updated_at, client_id, author, type"
    with plain.cursor() as cursor:
        for id, versions in _make_documents().items():
            for version, data in enumerate(versions):
                moment = start + timedelta(minutes=20 * version)
                row = [
                    id,
                    version,
                    json.dumps(data),
                    moment,
                    "top-crm",
                    "m.ivanov",
                    int(version > 0),
                ]
                cursor.execute(
                    f"INSERT INTO {ROOT.table} ({columns}) VALUES (%s, %s, %s, %s, %s, %s, %s)", row
                )
        cursor.execute(
            f"INSERT INTO {CHILD.table} ({columns}, product_instance_id)"
            " SELECT 'T' || n, 0, %s, %s + n * interval '1 second', 'top-crm', NULL, 0,"
            " '20000-children' FROM generate_series(1, 20000) AS n",
            [json.dumps({"name": "Проверить документы", "status": "NEW"}), start],
        )


def _measure_pages(rounds: int) -> list[dict[str, Any]]:
    from django.contrib.auth.models import User
    from django.test import Client

    client = Client(headers={"host": "localhost"})
    client.force_login(User.objects.get(username="support"))
    figures = []
    client.get("/admin/history/nothing/")  # the first request imports all pages
    for id, versions in _make_documents().items():
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
            times, cpu_times = [], []
            for _ in range(rounds):
                began, before = time.perf_counter(), time.process_time()
                response = client.get(address)
                times.append(time.perf_counter() - began)
                cpu_times.append(time.process_time() - before)
                assert response.status_code == 200, (address, response.status_code)
            ms, kb = min(times) * 1000, len(response.content) / 1000
            figures.append(
                {
                    "document": id,
                    "page": name,
                    "ms": round(ms),
                    "cpu_ms": round(min(cpu_times) * 1000),
                    "kb": round(kb, 1),
                    "met": ms <= LIMIT_MS and kb <= LIMIT_KB,
                }
            )
    return figures
