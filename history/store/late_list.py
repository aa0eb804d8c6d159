"""The late list: versions that were stored after the feed of changes had passed their moments.

The horizon is the moment that no page of the feed has passed. Begin with `lock_horizon` and
`raise_horizon`: together they see to it that no version is neither in the feed nor in the list.

- A writer, when it has stored its versions, locks the horizon (FOR SHARE) until its transaction
  ends, and notes in the same transaction those of the versions that are before the horizon.
- A reader raises the horizon to the end of its page, and reads the page after that is committed.
  PostgreSQL lets it raise the horizon when no writer holds the lock.

So a writer that locked the horizon before it was raised has committed before the page is read, and
one that locks it later sees the new horizon.

A position of the list is taken from one row, which the writer locks until its transaction ends. So
the positions grow in the order of the commits: whoever sees one sees all lower ones, too. There are
no gaps. A transaction that is rolled back gives its positions back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, LiteralString, NamedTuple

import msgspec
import psycopg
from django.db import connection as django_connection
from django.db import connections
from django.db.utils import OperationalError
from psycopg import errors

from history.store.database import prepared

Connection = psycopg.Connection[Any]

# Versions in one row of late_batch, and rows that one question reads.
BATCH_VERSIONS: Final = 500
BATCHES_PER_READ: Final = 20
# How long a page of the feed waits for writers that are about to commit.
PATIENCE: Final = "2s"
ROWS_PER_TRANSACTION: Final = 1_000


class LateVersion(NamedTuple):
    """A version for the late list."""

    entity: str  # the name of its kind
    id: str
    moment: int  # microseconds since 1970
    version: int


class LateCursor(NamedTuple):
    """A place in the late list: the row to read next, and how many versions of it were read."""

    position: int
    versions_read: int


@dataclass(frozen=True, slots=True)
class LateVersionBatch:
    """Versions of one kind that one transaction stored late."""

    position: int
    entity: str
    ids: list[str]
    moments: list[int]  # microseconds since 1970
    versions: list[int]


class FeedState(NamedTuple):
    """Where the feed and the late list stand."""

    horizon: datetime | None  # None as long as no program has read the feed
    end: LateCursor  # the end of the late list


class LateListGoneError(LookupError):
    """Raised when the late list does not have what follows a cursor.

    Retention has removed it, or the database is an older copy of the one that the cursor is from.
    """


# Writers.

_LOCK_HORIZON: Final[LiteralString] = """
SELECT (extract(epoch FROM given_to) * 1000000)::bigint FROM feed_horizon FOR SHARE
"""
_TAKE_POSITIONS: Final[LiteralString] = """
UPDATE late_list SET last_position = last_position + %(count)s RETURNING last_position
"""
# JSON arrays, one for each column, are cheaper to build and to parse than SQL arrays and rows.
_ADD_BATCHES: Final[LiteralString] = """
INSERT INTO late_batch (position, entity, ids, moments, versions, noted_at)
SELECT position::bigint, min(entity), array_agg(id ORDER BY n),
    array_agg(moment::bigint ORDER BY n), array_agg(version::int ORDER BY n), now()
FROM ROWS FROM (
    json_array_elements_text(%(positions)s::json), json_array_elements_text(%(entities)s::json),
    json_array_elements_text(%(ids)s::json), json_array_elements_text(%(moments)s::json),
    json_array_elements_text(%(versions)s::json)
) WITH ORDINALITY AS late(position, entity, id, moment, version, n)
GROUP BY position
"""


def lock_horizon(connection: Connection) -> int | None:
    """Return the horizon, and keep it as it is until the caller's transaction ends.

    Call it when the transaction waits for nothing else any more: readers of the feed wait for it.

    Returns:
        Microseconds since 1970. None as long as no program has read the feed.
    """
    row = connection.execute(_LOCK_HORIZON).fetchone()
    return None if row is None else row[0]


def add_late_versions(connection: Connection, versions: Iterable[LateVersion]) -> None:
    """Note versions in the list, inside the transaction that stores them.

    The next writer that notes something waits until this transaction ends.
    """
    batches = list(_generate_batches(versions))
    if not batches:
        return
    (last,) = connection.execute(_TAKE_POSITIONS, {"count": len(batches)}).fetchone() or (0,)
    rows = [
        (position, *version)
        for position, batch in enumerate(batches, last - len(batches) + 1)
        for version in batch
    ]
    names = ("positions", "entities", "ids", "moments", "versions")
    columns = [msgspec.json.encode(column).decode() for column in zip(*rows, strict=True)]
    connection.execute(_ADD_BATCHES, dict(zip(names, columns, strict=True)))


def _generate_batches(versions: Iterable[LateVersion]) -> Iterator[list[LateVersion]]:
    versions_by_kind: defaultdict[str, list[LateVersion]] = defaultdict(list)
    for version in versions:
        versions_by_kind[version.entity].append(version)
    for kind_versions in versions_by_kind.values():
        for start in range(0, len(kind_versions), BATCH_VERSIONS):
            yield kind_versions[start : start + BATCH_VERSIONS]


# Readers.

_STATE: Final = "SELECT given_to, last_position FROM feed_horizon, late_list"
# Both in one message: a web process that stops in between would hold the lock, and all writers.
# A lock_timeout would begin again with each writer that it waits for.
_RAISE_HORIZON: Final = f"""
SET LOCAL statement_timeout = '{PATIENCE}';
UPDATE feed_horizon SET given_to = greatest(given_to, %s)
"""  # noqa: S608 - a constant
_READ_BATCHES: Final = """
SELECT last_position, removed_to, position, entity, ids, moments, versions
FROM late_list LEFT JOIN (
    SELECT * FROM late_batch WHERE position >= %(position)s ORDER BY position LIMIT %(limit)s
) AS batch ON true
ORDER BY position
"""


def read_state() -> FeedState:
    """Return where the feed and the late list stand."""
    rows = prepared.fetch_rows(_STATE, {})
    horizon, last_position = rows[0] if rows else (None, 0)
    return FeedState(horizon, LateCursor(last_position + 1, 0))


def raise_horizon(moment: datetime) -> bool:
    """Raise the horizon to a moment, before a page of the feed up to there is read.

    Call it outside of a transaction.

    Returns:
        False if writers keep the horizon for longer than PATIENCE. It is as it was then.
    """
    try:
        with django_connection.cursor() as cursor:
            cursor.execute(_RAISE_HORIZON, [moment])
            cursor.nextset()
            return bool(cursor.rowcount)
    except OperationalError as error:
        if isinstance(error.__cause__, errors.QueryCanceled):
            return False
        raise


def fetch_batches(cursor: LateCursor) -> list[LateVersionBatch]:
    """Return the next rows of the list, at most BATCHES_PER_READ. The first may be read in part.

    Raises:
        LateListGoneError: The list does not have what follows the cursor.
    """
    rows = prepared.fetch_rows(
        _READ_BATCHES, {"position": cursor.position, "limit": BATCHES_PER_READ}
    )
    last_position, removed_to = rows[0][:2] if rows else (0, 0)
    if not removed_to < cursor.position <= last_position + 1:
        raise LateListGoneError
    return [LateVersionBatch(*row[2:]) for row in rows if row[2] is not None]


# The night, and `migrate`.

_REMOVE: Final[LiteralString] = """
DELETE FROM late_batch WHERE position = ANY(ARRAY(
    SELECT position FROM late_batch WHERE noted_at < %(before)s
    ORDER BY position LIMIT %(limit)s))
RETURNING position
"""


def remove_old_batches(connection: Connection, before: datetime) -> int:
    """Remove the rows that were noted before a moment. Return their number.

    Args:
        connection: A connection in autocommit mode.
    """
    removed, count = 0, ROWS_PER_TRANSACTION
    while count == ROWS_PER_TRANSACTION:
        with connection.transaction():
            rows = connection.execute(
                _REMOVE, {"before": before, "limit": ROWS_PER_TRANSACTION}
            ).fetchall()
            if rows:
                connection.execute(
                    "UPDATE late_list SET removed_to = greatest(removed_to, %(last)s)",
                    {"last": max(position for (position,) in rows)},
                )
        count = len(rows)
        removed += count
    return removed


def create_rows(*, using: str, **_: Any) -> None:
    """Add the one row that each of the two tables has. A receiver of post_migrate."""
    with connections[using].cursor() as cursor:
        if not {"feed_horizon", "late_list"} <= set(connections[using].introspection.table_names()):
            return
        cursor.execute("INSERT INTO feed_horizon (id) VALUES (1) ON CONFLICT (id) DO NOTHING")
        cursor.execute(
            "INSERT INTO late_list (id, last_position, removed_to) VALUES (1, 0, 0)"
            " ON CONFLICT (id) DO NOTHING"
        )
