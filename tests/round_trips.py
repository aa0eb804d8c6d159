"""How often a call waits for PostgreSQL: what it sends at once, and is answered at once, is one round
trip, however many statements it has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import psycopg
from django.db import connection

from history import timeline
from history.entities import BY_NAME, root
from history.timeline import ApplicationQuery, Query
from tests.db.store import minute

TASK: Final = BY_NAME["product-task"]

# Of the application A1 with its child T1, when all is warm: in a plain installation, and in a
# distributed one, where a child by its id needs its application first.
ROUND_TRIPS: Final[dict[str, tuple[Callable[[], object], int, int]]] = {
    "timeline of an application": (lambda: timeline.application(ApplicationQuery(id="A1")), 2, 2),
    "timeline of a document": (lambda: timeline.page(Query(entity=root(), id="A1")), 1, 1),
    "child by its id": (lambda: timeline.page(Query(entity=TASK, id="T1")), 1, 2),
    "version": (lambda: timeline.version(root(), "A1", 2), 1, 1),
    "version of a child": (lambda: timeline.version(TASK, "T1", 2), 1, 2),
    "application at": (lambda: timeline.application_at("A1", minute(60)), 2, 2),
    "document at": (lambda: timeline.at(root(), "A1", minute(60)), 1, 1),
    "child at": (lambda: timeline.at(TASK, "T1", minute(60)), 1, 2),
    "blame": (lambda: timeline.blame(root(), "A1"), 1, 1),
    "blame of a child": (lambda: timeline.blame(TASK, "T1"), 1, 2),
    "field": (lambda: timeline.field(root(), "A1", "/rate"), 1, 1),
    "compare": (lambda: timeline.compare(root(), "A1", 0, 2), 1, 1),
    "compare a child": (lambda: timeline.compare(TASK, "T1", 0, 2), 1, 2),
    "search by id": (lambda: timeline.search("A1"), 7, 4),
    "search by the id of a child": (lambda: timeline.search("T1"), 11, 9),
}


def counted(call: Callable[[], object], folder: Path) -> int:
    """The round trips of a call on Django's connection. folder: for a file."""
    connection.ensure_connection()
    server = connection.connection.pgconn
    trace = folder / "trace"
    with trace.open("w") as file:
        server.trace(file.fileno())
        server.set_trace_flags(psycopg.pq.Trace.SUPPRESS_TIMESTAMPS)
        try:
            call()
        finally:
            server.untrace()
    # F: to the server, B: back.
    ways = [line[:1] for line in trace.read_text().splitlines() if line[:2] in ("F\t", "B\t")]
    return sum(pair == ("F", "B") for pair in zip(ways, ways[1:], strict=False))
