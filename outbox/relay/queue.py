"""The relay's view of the tables: which documents wait, their versions, and what became of them."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from outbox import days
from outbox.database import Connection
from outbox.message import Version
from outbox.status import WAITING


@dataclass(frozen=True, slots=True)
class Due:
    """A document with versions that are not sent. sent: the newest that is; version: the newest
    that was recorded. attempts: failed ones since the last success."""

    document: str
    bucket: int
    sent: int
    version: int
    waiting_since: datetime
    recorded_at: datetime
    attempts: int


@dataclass(frozen=True, slots=True)
class Chain:
    """The next versions of a document, one after the other without gaps."""

    due: Due
    versions: Sequence[Version]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a version was not sent. outage: the brokers could not be asked, so it says nothing about
    this version. late: there was no answer in time. shared: Kafka refuses a whole batch with this
    reason, so perhaps another message of it is the bad one."""

    reason: str
    text: str
    outage: bool = False
    late: bool = False
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """sent: the newest version that Kafka confirmed, perhaps none of this chain. recorded_at: of
    that version. failure: of the version after it."""

    due: Due
    sent: int
    recorded_at: datetime
    failure: Failure | None = None


# Bytes of documents that are read at a time, about.
_BYTES = 4 * 1024 * 1024
_LEAST_ROWS, _MOST_ROWS = 10, 1_000
# Versions of one document at a time: each is sent after the one before is confirmed.
_CHAIN = 10

_COLUMNS = "key, bucket, sent, version, waiting_since, recorded_at, attempts"
# Documents that are further than their rows say hide none behind them.
_FURTHER = "version > coalesce((%(known)s::jsonb ->> key)::int, -1)"
# What failed takes a quarter at most, so that it keeps nothing else waiting.
_DUE = f"""
(SELECT {_COLUMNS} FROM unnest(%(buckets)s::smallint[]) AS b (number) CROSS JOIN LATERAL (
    SELECT * FROM outbox_document
    WHERE bucket = b.number AND waiting_since IS NOT NULL AND attempts = 0 AND {_FURTHER}
    ORDER BY waiting_since LIMIT %(each)s
) AS d ORDER BY waiting_since LIMIT %(rows)s)
UNION ALL
(SELECT {_COLUMNS} FROM unnest(%(buckets)s::smallint[]) AS b (number) CROSS JOIN LATERAL (
    SELECT * FROM outbox_document
    WHERE bucket = b.number AND attempts > 0 AND next_attempt_at <= clock_timestamp()
        AND {_FURTHER}
    ORDER BY next_attempt_at LIMIT %(each)s
) AS d ORDER BY next_attempt_at LIMIT %(retries)s)
ORDER BY waiting_since
"""  # noqa: S608 - our own constants
# Few rows if they are large: they are read up to the one that exceeds the bytes.
_VERSIONS = """
SELECT document, version, type, recorded_at, updated_at, client_id, author, parent, data, size
FROM (
    SELECT m.*, sum(octet_length(m.data)) OVER (ROWS UNBOUNDED PRECEDING) AS size
    FROM unnest(%(keys)s::text[], %(sent)s::int[]) AS d (key, sent) CROSS JOIN LATERAL (
        SELECT * FROM outbox_message
        WHERE document = d.key AND version > d.sent AND slot = ANY(%(slots)s::smallint[])
        ORDER BY version LIMIT %(chain)s
    ) AS m LIMIT %(rows)s
) AS m WHERE size - octet_length(data) < %(bytes)s
"""
# The lock on the relay's row is the fence: who takes over its buckets deletes that row. A row that
# is further than the relay knows had its version discarded by a person.
_SETTLE = """
WITH me AS (
    SELECT id FROM outbox_relay WHERE id = %(relay)s FOR KEY SHARE
), outcome AS (
    SELECT * FROM unnest(%(keys)s::text[], %(sent)s::int[], %(recorded_at)s::timestamptz[],
        %(errors)s::text[], %(pauses)s::float8[]) AS o (key, sent, recorded_at, error, pause)
), free AS (
    SELECT d.key FROM outcome AS o CROSS JOIN LATERAL (
        SELECT key FROM outbox_document WHERE key = o.key FOR UPDATE SKIP LOCKED
    ) AS d WHERE EXISTS (SELECT FROM me)
)
UPDATE outbox_document AS d SET
    sent = greatest(d.sent, o.sent),
    waiting_since = CASE WHEN d.version > greatest(d.sent, o.sent)
        THEN greatest(d.waiting_since, o.recorded_at) END,
    attempts = CASE WHEN o.sent < d.sent THEN d.attempts WHEN o.error = '' THEN 0
        WHEN o.sent > d.sent THEN 1 ELSE d.attempts + 1 END,
    next_attempt_at = CASE WHEN o.sent < d.sent THEN d.next_attempt_at
        WHEN o.error <> '' THEN clock_timestamp() + o.pause * interval '1 second' END,
    last_error = CASE WHEN o.sent < d.sent THEN d.last_error ELSE o.error END
FROM outcome AS o WHERE o.key = d.key AND d.key IN (SELECT key FROM free)
RETURNING d.key
"""
# Whether a table of versions has one that is not sent.
_UNSENT = f"""
SELECT EXISTS (
    SELECT FROM {WAITING} AS d JOIN {{table}} AS m ON m.document = d.key AND m.version > d.sent
)
"""  # noqa: S608 - our own constant
# After the clock went back, no retry is further away than the longest pause.
_NEARER = """
UPDATE outbox_document SET next_attempt_at = clock_timestamp() + %(most)s * interval '1 second'
WHERE bucket = ANY(%(buckets)s::smallint[]) AND attempts > 0
    AND next_attempt_at > clock_timestamp() + %(most)s * interval '2 seconds'
"""


@dataclass(slots=True)
class DueReader:
    """Reads what is to be sent. Reads fewer rows at a time if they are large."""

    _rows: int = _LEAST_ROWS
    # Documents whose next version should be there and is not.
    missing: Sequence[Due] = ()

    def due(
        self,
        connection: Connection,
        buckets: Collection[int],
        known: Mapping[str, int],
        *,
        retries: bool = True,
    ) -> list[Due]:
        """Documents whose next version may be sent now, the longest waiting first. known: newest
        versions that need not be sent. retries: also those that failed."""
        if not buckets:
            return []
        each = max(16, 2 * self._rows // len(buckets))
        given = {
            "buckets": list(buckets),
            "each": each,
            "rows": self._rows,
            "retries": max(1, self._rows // 4) if retries else 0,
            "known": json.dumps(known),
        }
        return [Due(*row) for row in connection.execute(_DUE, given)]

    def chains(self, connection: Connection, documents: Sequence[Due]) -> list[Chain]:
        """Their next versions; not of all documents, if these are too many."""
        self.missing = ()
        if not documents:
            return []
        since = min(due.waiting_since for due in documents)
        until = max(due.recorded_at for due in documents)
        given = {
            "keys": [due.document for due in documents],
            "sent": [due.sent for due in documents],
            "slots": days.slots(since, until),
            "chain": _CHAIN,
            "rows": self._rows,
            "bytes": _BYTES,
        }
        found: dict[str, list[Version]] = {}
        size = count = 0
        # Prepared, it would be planned for all days, and take four times as long.
        for *row, until_here in connection.execute(_VERSIONS, given, prepare=False):
            version = Version(*row)
            found.setdefault(version.document, []).append(version)
            size, count = int(until_here), count + 1
        chains = [Chain(due, _next(due, found.get(due.document, []))) for due in documents]
        if count < self._rows and size < _BYTES:
            self.missing = [each.due for each in chains if not each.versions]
        if count:
            self._rows = min(_MOST_ROWS, max(_LEAST_ROWS, _BYTES * count // max(size, 1)))
        return [each for each in chains if each.versions]


def settle(
    connection: Connection, relay: int, outcomes: Iterable[tuple[Outcome, float]]
) -> set[str]:
    """Write what became of documents, with the seconds before the next attempt. Returns those
    written: not those that a writer has locked, none if the relay has lost its buckets."""
    rows = [
        (
            outcome.due.document,
            outcome.sent,
            outcome.recorded_at,
            _sentence(outcome.failure),
            pause,
        )
        for outcome, pause in outcomes
    ]
    keys, sent, recorded_at, errors, pauses = map(list, zip(*rows, strict=True))
    given = {
        "relay": relay,
        "keys": keys,
        "sent": sent,
        "recorded_at": recorded_at,
        "errors": errors,
        "pauses": pauses,
    }
    return {key for (key,) in connection.execute(_SETTLE, given)}


def bring_nearer(connection: Connection, buckets: Collection[int], most: float) -> None:
    """Have no attempt further away than the longest pause, `most` seconds."""
    connection.execute(_NEARER, {"buckets": list(buckets), "most": most})


def clean(connection: Connection, keep_days: int, beat: Callable[[], None]) -> list[str]:
    """Truncate the tables of sent versions that are older than keep_days; their names."""
    return days.clean(connection, "outbox_message", keep_days, _UNSENT, beat)


def _next(due: Due, versions: list[Version]) -> list[Version]:
    """Those that follow the sent one without a gap."""
    ordered = sorted(versions, key=lambda each: each.version)
    return [each for place, each in enumerate(ordered, due.sent + 1) if each.version == place]


def _sentence(failure: Failure | None) -> str:
    return "" if failure is None else f"{failure.reason}: {failure.text}"
