"""Counts the round trips to PostgreSQL that a call needs.

Statements that are sent together make one round trip.
"""

from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import psycopg
import pytest
from django.db import connection

from history import timeline
from history.kinds.entities import BY_NAME, get_root
from history.store.catalogue import labels
from history.timeline import TimelineQuery
from tests.db.store import HOST


class RoundTripQuestion(NamedTuple):
    """The argument of each function in ROUND_TRIPS: ids of two documents, and a moment.

    The application and the task have three versions each, all before the moment.
    """

    application: str
    child: str  # a task of the application
    moment: datetime


TASK: Final = BY_NAME["product-task"]

# Calls with one more round trip on a cluster, because they read the list of children first.
ONE_MORE_ON_CLUSTER: Final = frozenset({"timeline of an application", "application at"})
# The expected number of round trips of each call, when all caches are filled.
ROUND_TRIPS: Final[dict[str, tuple[Callable[[RoundTripQuestion], object], int]]] = {
    "timeline of an application": (
        lambda question: timeline.fetch_page(HOST, TimelineQuery(id=question.application)),
        2,
    ),
    "timeline of a document": (
        lambda question: timeline.fetch_page(
            HOST, TimelineQuery(entity=get_root(), id=question.application)
        ),
        1,
    ),
    "child by its id": (
        lambda question: timeline.fetch_page(HOST, TimelineQuery(entity=TASK, id=question.child)),
        1,
    ),
    "version": (
        lambda question: timeline.fetch_version(HOST, get_root(), question.application, 2),
        1,
    ),
    "version of a child": (
        lambda question: timeline.fetch_version(HOST, TASK, question.child, 2),
        1,
    ),
    "application at": (
        lambda question: timeline.fetch_application_at(HOST, question.application, question.moment),
        2,
    ),
    "document at": (
        lambda question: timeline.fetch_version_at(
            HOST, get_root(), question.application, question.moment
        ),
        1,
    ),
    "child at": (
        lambda question: timeline.fetch_version_at(HOST, TASK, question.child, question.moment),
        1,
    ),
    "blame": (lambda question: timeline.blame_leaves(HOST, get_root(), question.application), 1),
    "blame of a child": (lambda question: timeline.blame_leaves(HOST, TASK, question.child), 1),
    "field": (
        lambda question: timeline.fetch_field_history(
            HOST, get_root(), question.application, "/rate"
        ),
        1,
    ),
    "compare": (
        lambda question: timeline.compare_versions(HOST, get_root(), question.application, 0, 2),
        1,
    ),
    "compare a child": (
        lambda question: timeline.compare_versions(HOST, TASK, question.child, 0, 2),
        1,
    ),
    "search by id": (lambda question: timeline.search(HOST, question.application), 2),
    "search by the id of a child": (lambda question: timeline.search(HOST, question.child), 3),
}


def count_round_trips(call: Callable[[], object], folder: Path) -> int:
    """Return the number of round trips of a call on Django's connection.

    Args:
        folder: A folder for the file with libpq's trace of the connection.
    """
    connection.ensure_connection()
    server = connection.connection.pgconn
    trace = folder / "trace"
    with trace.open("w") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr(labels, "FRESH_SECONDS", 3600)  # on a slow machine too
        server.trace(file.fileno())
        server.set_trace_flags(psycopg.pq.Trace.SUPPRESS_TIMESTAMPS)
        try:
            call()
        finally:
            server.untrace()
    # F: to the server, B: back.
    directions = [line[:1] for line in trace.read_text().splitlines() if line[:2] in ("F\t", "B\t")]
    return sum(pair == ("F", "B") for pair in pairwise(directions))
