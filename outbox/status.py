"""What waits, what failed and who sends: read from the tables, for metrics and for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.db import connections

# Two questions, because each has an index.
WAITING = """(
    SELECT * FROM outbox_document WHERE waiting_since IS NOT NULL AND attempts = 0
    UNION ALL SELECT * FROM outbox_document WHERE attempts > 0
)"""
_PENDING = f"""
SELECT count(*), coalesce(sum(version - sent), 0), count(*) FILTER (WHERE attempts > 0),
    coalesce(greatest(extract(epoch FROM clock_timestamp() - min(waiting_since)), 0), 0)::float8
FROM {WAITING} AS d
"""  # noqa: S608 - our own constant
_OWNERS = """
SELECT b.number, r.name FROM outbox_bucket AS b LEFT JOIN outbox_relay AS r ON r.id = b.owner
ORDER BY b.number
"""
FAILURE = "failure "


@dataclass(frozen=True, slots=True)
class Status:
    """The state of an outbox.

    documents, versions: that wait; oldest_seconds: how long the oldest of them does. failed:
    documents whose next version was refused. sent, attempts: versions, ever. failures: by reason,
    ever. owners: relay by bucket, None if nobody has it.
    """

    documents: int
    versions: int
    failed: int
    oldest_seconds: float
    sent: int
    attempts: int
    failures: Mapping[str, int]
    owners: Mapping[int, str | None]


def read(using: str) -> Status:
    """The state of the outbox in a database."""
    with connections[using].cursor() as cursor:
        cursor.execute(_PENDING)
        documents, versions, failed, oldest = cursor.fetchone()
        cursor.execute("SELECT what, times FROM outbox_tally ORDER BY what")
        tally = dict(cursor.fetchall())
        cursor.execute(_OWNERS)
        owners = dict(cursor.fetchall())
    return Status(
        documents,
        int(versions),
        failed,
        oldest,
        tally.get("sent", 0),
        tally.get("attempts", 0),
        {
            what.removeprefix(FAILURE): times
            for what, times in tally.items()
            if what.startswith(FAILURE)
        },
        owners,
    )
