"""What a person can do about a document whose next version Kafka refuses."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

from django.db import connections, transaction

from outbox.message import Version
from outbox.writer import CHANNEL

_RETRY = """
WITH retried AS (
    UPDATE outbox_document SET next_attempt_at = clock_timestamp()
    WHERE key = ANY(%s) AND attempts > 0 RETURNING key, bucket
)
SELECT key, pg_notify(%s, bucket::text) FROM retried
"""
_DISCARD = """
WITH discarded AS (
    UPDATE outbox_document SET
        sent = sent + 1,
        waiting_since = CASE WHEN version > sent + 1 THEN waiting_since END,
        attempts = 0,
        next_attempt_at = NULL,
        last_error = ''
    WHERE key = ANY(%s) AND attempts > 0 RETURNING key, sent, bucket
)
SELECT key, sent, pg_notify(%s, bucket::text) FROM discarded
"""


def retry(keys: Collection[str], using: str) -> list[str]:
    """Have failed documents tried again at once; those that are."""
    with connections[using].cursor() as cursor:
        cursor.execute(_RETRY, [list(keys), CHANNEL])
        return [key for key, _ in cursor.fetchall()]


def discard(keys: Collection[str], using: str) -> dict[str, int]:
    """Give up the next version of failed documents, so that the one after it is sent. Consumers see
    a gap. Returns the number of each version that was given up."""
    with connections[using].cursor() as cursor:
        cursor.execute(_DISCARD, [list(keys), CHANNEL])
        return {key: version for key, version, _ in cursor.fetchall()}


MOST_VERSIONS: Final = 500
# Of documents in one answer; the first one may be larger.
MOST_BYTES: Final = 4 * 1024 * 1024
_SECONDS: Final = 5

# One statement, so one snapshot. The texts beyond the limits are not read: their lengths are known
# without them.
_VERSIONS = """
WITH known AS (
    SELECT version AS newest, sent FROM outbox_document WHERE key = %(key)s
), found AS (
    SELECT *, row_number() OVER in_order AS number, sum(octet_length(data)) OVER in_order AS total
    FROM (
        SELECT version, type, recorded_at, updated_at, client_id, author, parent, data
        FROM outbox_message
        WHERE document = %(key)s AND version >= %(first)s
            AND version <= least(%(last)s, (SELECT sent FROM known))
        ORDER BY version LIMIT %(rows)s + 1
    ) AS there WINDOW in_order AS (ORDER BY version ROWS UNBOUNDED PRECEDING)
)
SELECT newest, sent, version, type, recorded_at, updated_at, client_id, author, parent,
    CASE WHEN number = 1 OR number <= %(rows)s AND total <= %(bytes)s THEN data END
FROM known LEFT JOIN found ON true ORDER BY version
"""

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Answer:
    """Of the versions that were asked for, up to before `next` (None: all of them): those that are
    here, ascending; and as ranges, both ends included, those that are `gone` (they were sent, and
    are removed), `waiting` (recorded, and not sent yet), and `unrecorded`."""

    versions: list[Version]
    gone: list[Range]
    waiting: list[Range]
    unrecorded: list[Range]
    next: int | None

    def lines(self) -> bytes:
        """A line for each version: the value of its message, byte for byte. Then one line that says
        what became of the others."""
        rest = {
            "gone": self.gone,
            "waiting": self.waiting,
            "unrecorded": self.unrecorded,
            "next": self.next,
        }
        return b"\n".join([*(each.value() for each in self.versions), json.dumps(rest).encode()])


def read(using: str, document: str, first: int, last: int) -> Answer:
    """The versions `first` to `last` of a document, as many as the limits allow. document:
    entity/id. Reads in a transaction that cannot write, and for a few seconds at most."""
    given: dict[str, str | int] = {
        "key": document,
        "first": first,
        "last": last,
        "rows": MOST_VERSIONS,
        "bytes": MOST_BYTES,
    }
    with transaction.atomic(using), connections[using].cursor() as cursor:
        cursor.execute("SET TRANSACTION READ ONLY")
        cursor.execute(f"SET LOCAL statement_timeout = '{_SECONDS}s'")
        cursor.execute(_VERSIONS, given)
        return _answer(cursor.fetchall(), document, first, last)


def _answer(rows: list[tuple[Any, ...]], document: str, first: int, last: int) -> Answer:
    newest, sent = rows[0][:2] if rows else (0, 0)
    found = [row[2:] for row in rows if row[2] is not None]
    versions = [Version(document, *row) for row in found if row[-1] is not None]
    following = next((int(row[0]) for row in found if row[-1] is None), None)
    end = last if following is None else following - 1
    return Answer(
        versions,
        list(_holes((each.version for each in versions), first, min(end, sent))),
        _range(max(first, sent + 1), min(end, newest)),
        _range(max(first, newest + 1), end),
        following,
    )


def _holes(numbers: Iterable[int], first: int, last: int) -> Iterable[Range]:
    for number in numbers:
        yield from _range(first, number - 1)
        first = number + 1
    yield from _range(first, last)


def _range(first: int, last: int) -> list[Range]:
    return [(first, last)] if first <= last else []
