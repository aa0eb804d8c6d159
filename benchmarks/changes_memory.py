"""Measures how much memory a web process needs for a page of changes of large documents.

Each page is answered by a new process, so that no page can use memory that another page allocated.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, date, datetime
from datetime import time as clock
from pathlib import Path
from typing import Any, Final, NamedTuple

import psycopg
from django.contrib.auth.models import User
from django.test import Client

from history.common import memory
from history.kinds.entities import get_root
from history.store.days import days
from history.timeline import budget

ROOT: Final = get_root()
# By how many MB the memory of a process may grow while it answers a page.
MOST_MEGABYTES: Final = 300
# The time limit of a page. It is long, so that a page reads as many versions on a slow machine as
# on a fast one.
SECONDS_OF_PAGE: Final = 300


class LargeDocuments(NamedTuple):
    """The number and size of the versions that one author has in this benchmark."""

    author: str
    items: int  # how many items of 72 bytes a large document has
    versions: int  # the number of versions of all documents together
    versions_of_document: int  # the number of versions of one document


# So many newest versions of each author have large snapshots: twice as many as a page reads.
LARGE_VERSIONS: Final = 2 * budget.SCAN_VERSIONS
LARGE_DOCUMENTS: Final = (
    LargeDocuments("robot", items=500, versions=200_000, versions_of_document=100),  # 36 KB
    LargeDocuments("giant", items=14_500, versions=200, versions_of_document=200),  # 1 MB
    LargeDocuments("single", items=1, versions=200_000, versions_of_document=200_000),
    LargeDocuments("busy", items=1, versions=5_000_000, versions_of_document=10),
)
_FILL: Final = """
INSERT INTO {table} (id, version, data, updated_at, client_id, author, type)
SELECT %(author)s || n / %(versions_of_document)s, n %% %(versions_of_document)s,
    CASE WHEN n >= %(versions)s - %(large_versions)s THEN items.data ELSE '{{}}' END
        || jsonb_build_object('rate', n),
    %(start)s::timestamptz + n * interval '20 hours' / %(versions)s, 'robot', %(author)s,
    (n %% %(versions_of_document)s > 0)::int
FROM generate_series(0, %(versions)s - 1) AS n, (
    SELECT jsonb_build_object('items', jsonb_agg(jsonb_build_object(
        'pid', i, 'name', md5(i::text), 'sum', i * 1000))) AS data
    FROM generate_series(1, %(items)s) AS i
) AS items
"""

# The parameters of each page, except `from`.
_PAGES: Final[Mapping[str, Mapping[str, str]]] = {
    "36 KB": {"author": "robot"},
    "36 KB, 500 versions": {"author": "robot", "pageSize": "500", "include": "changes"},
    "36 KB, path that changes": {"author": "robot", "path": "/rate", "pageSize": "500"},
    "36 KB, path that stays": {"author": "robot", "path": "/items"},
    "1 MB": {"author": "giant"},
    "1 MB, path that stays": {"author": "giant", "path": "/items"},
    "200,000 versions of a document": {"author": "single", "path": "/items"},
    "5,000,000 versions of a person": {"author": "busy", "pageSize": "500"},
    "5,000,000 versions of a person, path that stays": {"author": "busy", "path": "/items"},
}


def store_large_documents(connection: psycopg.Connection[Any], day: date) -> None:
    """Create the partition of `day`, and fill it with the documents of LARGE_DOCUMENTS."""
    days.create_partition(connection, ROOT.table, day)
    start = datetime.combine(day, clock(), UTC)
    for documents in LARGE_DOCUMENTS:
        values = {**documents._asdict(), "start": start, "large_versions": LARGE_VERSIONS}
        connection.execute(_FILL.format(table=ROOT.table), values)


def measure_pages(environment: Mapping[str, str]) -> dict[str, int]:
    """Return, by page, by how many MB the memory of a process grows during one request.

    Args:
        environment: The environment for a process that uses the database with large documents.
    """
    return {name: _measure_page(environment, parameters) for name, parameters in _PAGES.items()}


_PROGRAM: Final = """
import json, sys, django
django.setup()
from benchmarks.changes_memory import print_growth
print_growth(json.loads(sys.argv[1]))
"""


def _measure_page(environment: Mapping[str, str], parameters: Mapping[str, str]) -> int:
    process = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps(dict(parameters))],
        env={**environment, "ANNALS_REQUEST_SECONDS": str(SECONDS_OF_PAGE)},
        cwd=Path(__file__).parents[1],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return int(process.stdout.splitlines()[-1])


def print_growth(parameters: Mapping[str, str]) -> None:
    """Answer a page as the web server does, and print by how many MB the memory grew.

    Args:
        parameters: The parameters of the page, except `from`.
    """
    memory.limit_heaps()
    budget.PAGE_SECONDS = SECONDS_OF_PAGE
    client = Client(SERVER_NAME="localhost")
    client.force_login(User.objects.get(username="auditor"))
    start = {"from": "2020-01-01T00:00:00Z"}
    _ask(client, {**start, "author": "nobody"})  # imports the modules that every request needs
    before = _read_status("VmRSS")
    _ask(client, {**start, **parameters})
    print((_read_status("VmHWM") - before) // 1024)


def _ask(client: Client, parameters: Mapping[str, str]) -> None:
    answer = client.get("/api/v1/changes", parameters)
    if answer.status_code != 200:
        raise RuntimeError(
            f"the request with {parameters} was answered with {answer.status_code}: "
            f"{answer.content[:200]!r}"
        )


def _read_status(name: str) -> int:
    """Return a memory size of this process in KB.

    Args:
        name: A field of /proc/self/status, such as VmRSS.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise LookupError(name)
