"""The late list: versions that were stored after the feed of changes had passed their moments.

The horizon is the moment that no page of any feed has passed. Read the functions `lock_horizon`
and `raise_horizon` first. Writers call `lock_horizon`, and requests for the feed call
`raise_horizon`, so that every version is in the feed, in the list, or in both:

- A writer stores its versions, and then locks the horizon (FOR SHARE) until its transaction ends.
  It adds the versions with moments before the horizon to the list, in the same transaction.
  The restore of an archived day is such a writer, too.
- A request for a page of the feed first raises the horizon to the end of this page, commits, and
  then reads the page. The horizon can be raised only while no writer has it locked.

So a writer that locked the old horizon has committed before the page is read, and its versions are
in the page. A writer that locks the horizon later sees the new horizon, and adds its versions
to the list.

Writers take the positions of the list from one row, which stays locked until their transaction
ends. So positions grow in the order of the commits, without gaps: a transaction that sees a
position also sees all lower ones. A transaction that is rolled back gives its positions back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, LiteralString, NamedTuple

import psycopg
from django.db import connection as django_connection
from django.db import connections
from django.db.utils import OperationalError
from psycopg import errors, sql

from history.store.database import prepared
from history.store.json_columns import encode_columns

Connection = psycopg.Connection[Any]

BATCH_VERSIONS: Final = 500  # the most versions in one row of late_batch
BATCHES_PER_READ: Final = 20  # rows of late_batch
# How long a page of the feed waits for writers that are about to commit.
HORIZON_WAIT: Final = "2s"
ROWS_PER_TRANSACTION: Final = 1_000  # rows of late_batch that are removed at once


class LateVersion(NamedTuple):
    """A version that was stored late."""

    entity: str  # the name of the kind
    id: str
    moment: int  # microseconds since 1970
    version: int


class LateCursor(NamedTuple):
    """The point in the late list up to which a program has read."""

    position: int  # the position of the row to read next
    versions_read: int  # how many versions of this row have been read already


@dataclass(frozen=True, slots=True)
class LateVersionBatch:
    """One row of the late list: versions of one kind that one transaction stored late."""

    position: int
    entity: str
    ids: list[str]
    moments: list[int]  # microseconds since 1970
    versions: list[int]


class FeedState(NamedTuple):
    """The horizon of the feed, and the end of the late list."""

    horizon: datetime | None  # None until a program reads the feed for the first time
    end: LateCursor  # after the last version of the list


class LateListGoneError(LookupError):
    """Raised when the late list does not have all versions after a cursor any more.

    Retention has removed the versions after the cursor. Or the database was restored from a copy
    that is older than the cursor.
    """


# Writers.

_LOCK_HORIZON: Final[LiteralString] = """
SELECT (extract(epoch FROM given_to) * 1000000)::bigint AS horizon FROM feed_horizon FOR SHARE
"""
_TAKE_POSITIONS: Final[LiteralString] = """
UPDATE late_list SET last_position = last_position + %(count)s RETURNING last_position
"""
# The columns come from `encode_columns`.
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
    """Return the horizon, and lock it until the caller's transaction ends.

    Call it last in the transaction, because requests for the feed wait for the lock.

    Returns:
        Microseconds since 1970. None until a program reads the feed for the first time.
    """
    row = connection.execute(_LOCK_HORIZON).fetchone()
    return None if row is None else row[0]


def add_late_versions(connection: Connection, versions: Iterable[LateVersion]) -> None:
    """Add versions to the list, in the transaction that stores them.

    Other writers that add versions wait until this transaction ends.
    """
    batches = list(_generate_batches(versions))
    if not batches:
        return
    row = connection.execute(_TAKE_POSITIONS, {"count": len(batches)}).fetchone()
    last_position = row[0] if row else 0
    rows = [
        (position, *version)
        for position, batch in enumerate(batches, last_position - len(batches) + 1)
        for version in batch
    ]
    names = ("positions", "entities", "ids", "moments", "versions")
    columns = encode_columns(zip(*rows, strict=True))
    connection.execute(_ADD_BATCHES, dict(zip(names, columns, strict=True)))


def _generate_batches(versions: Iterable[LateVersion]) -> Iterator[list[LateVersion]]:
    """Yield the versions kind by kind, at most BATCH_VERSIONS at a time."""
    versions_by_kind: defaultdict[str, list[LateVersion]] = defaultdict(list)
    for version in versions:
        versions_by_kind[version.entity].append(version)
    for kind_versions in versions_by_kind.values():
        for start in range(0, len(kind_versions), BATCH_VERSIONS):
            yield kind_versions[start : start + BATCH_VERSIONS]


# Restored days.

_STAGE_TABLE: Final[LiteralString] = """
CREATE TEMPORARY TABLE staged_late_batch ON COMMIT DROP AS
SELECT array_agg(id ORDER BY n) AS ids, array_agg(moment ORDER BY n) AS moments,
    array_agg(version ORDER BY n) AS versions
FROM (
    SELECT id, (extract(epoch FROM updated_at) * 1000000)::bigint AS moment, version,
        row_number() OVER (ORDER BY updated_at, id, version) - 1 AS n
    FROM {table}
) AS numbered
GROUP BY n / {batch_versions}
"""
_COUNT_STAGED: Final[LiteralString] = """
SELECT count(*) FROM staged_late_batch WHERE moments[1] < %(horizon)s
"""
_ADD_STAGED: Final[LiteralString] = """
INSERT INTO late_batch (position, entity, ids, moments, versions, noted_at)
SELECT %(before_first)s + row_number() OVER (ORDER BY moments[1], ids[1]), %(entity)s, ids,
    moments, versions, now()
FROM staged_late_batch WHERE moments[1] < %(horizon)s
"""


def stage_table(connection: Connection, table: sql.Identifier) -> None:
    """Copy the keys of a table's plain rows, sorted, to a temporary table.

    `add_staged_versions` reads the temporary table later in the same transaction. Call
    `stage_table` before the transaction takes locks, because sorting the rows takes time.
    """
    connection.execute(
        sql.SQL(_STAGE_TABLE).format(table=table, batch_versions=sql.Literal(BATCH_VERSIONS))
    )


def add_staged_versions(connection: Connection, entity: str) -> None:
    """Add the staged versions before the horizon to the late list, in whole batches.

    So the last batch can also have versions after the horizon. Readers of the list skip these,
    because the feed will have them. Call this last in the transaction: other writers that add
    versions wait until the transaction ends.

    Args:
        entity: The name of the kind.
    """
    horizon = lock_horizon(connection)
    if horizon is None:
        return
    row = connection.execute(_COUNT_STAGED, {"horizon": horizon}).fetchone()
    count = row[0] if row else 0
    if count == 0:
        return
    row = connection.execute(_TAKE_POSITIONS, {"count": count}).fetchone()
    last_position = row[0] if row else 0
    connection.execute(
        _ADD_STAGED,
        {"before_first": last_position - count, "entity": entity, "horizon": horizon},
    )


# Readers.

_STATE: Final = "SELECT given_to AS horizon, last_position FROM feed_horizon, late_list"
# Both statements are sent in one message: a web process that stops between them would hold the
# lock, and all writers would wait. A lock_timeout would not limit the wait: it begins again for
# each writer that PostgreSQL waits for.
_RAISE_HORIZON: Final = f"""
SET LOCAL statement_timeout = '{HORIZON_WAIT}';
UPDATE feed_horizon SET given_to = greatest(given_to, %(moment)s)
"""  # noqa: S608 - a constant
_READ_BATCHES: Final = """
SELECT last_position, removed_to, position, entity, ids, moments, versions
FROM late_list LEFT JOIN (
    SELECT * FROM late_batch WHERE position >= %(position)s ORDER BY position LIMIT %(limit)s
) AS batch ON true
ORDER BY position
"""


def read_state() -> FeedState:
    """Return the horizon of the feed, and the end of the late list."""
    rows = prepared.fetch_rows(_STATE, {})
    horizon, last_position = rows[0] if rows else (None, 0)
    return FeedState(horizon, LateCursor(last_position + 1, 0))


def raise_horizon(moment: datetime) -> bool:
    """Raise the horizon to a moment. Call it before a page of the feed up to this moment is read.

    Call it outside of a transaction. A higher horizon stays as it is.

    Returns:
        False if the horizon was not raised, because writers had it locked for HORIZON_WAIT.
    """
    try:
        with django_connection.cursor() as cursor:
            cursor.execute(_RAISE_HORIZON, {"moment": moment})
            cursor.nextset()
            return bool(cursor.rowcount)
    except OperationalError as error:
        if isinstance(error.__cause__, errors.QueryCanceled):
            return False
        raise


def fetch_batches(cursor: LateCursor) -> list[LateVersionBatch]:
    """Return the rows of the late list after `cursor`, at most BATCHES_PER_READ.

    Some versions of the first row may have been read already: see `cursor.versions_read`.

    Raises:
        LateListGoneError: The late list does not have all versions after the cursor any more.
    """
    rows = prepared.fetch_rows(
        _READ_BATCHES, {"position": cursor.position, "limit": BATCHES_PER_READ}
    )
    last_position, removed_to = rows[0][:2] if rows else (0, 0)
    if not removed_to < cursor.position <= last_position + 1:
        raise LateListGoneError
    return [LateVersionBatch(*row[2:]) for row in rows if row[2] is not None]


# The nightly removal, and the receiver of `migrate`.

_REMOVE: Final[LiteralString] = """
DELETE FROM late_batch WHERE position = ANY(ARRAY(
    SELECT position FROM late_batch WHERE noted_at < %(before)s
    ORDER BY position LIMIT %(limit)s))
RETURNING position
"""


def remove_old_batches(connection: Connection, before: datetime) -> int:
    """Remove the rows of late_batch that were stored before a moment, and return their number.

    Args:
        connection: A connection in autocommit mode.
    """
    removed_rows, count = 0, ROWS_PER_TRANSACTION
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
        removed_rows += count
    return removed_rows


def create_rows(*, using: str, **_: Any) -> None:
    """Create the single row of feed_horizon and the single row of late_list.

    A receiver of post_migrate.
    """
    with connections[using].cursor() as cursor:
        if not {"feed_horizon", "late_list"} <= set(connections[using].introspection.table_names()):
            return
        cursor.execute("INSERT INTO feed_horizon (id) VALUES (1) ON CONFLICT (id) DO NOTHING")
        cursor.execute(
            "INSERT INTO late_list (id, last_position, removed_to) VALUES (1, 0, 0)"
            " ON CONFLICT (id) DO NOTHING"
        )
