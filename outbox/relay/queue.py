"""The queries of a relay: reads due documents, reads their versions, and writes outcomes."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from outbox.database import day_tables
from outbox.database.sessions import Connection
from outbox.operations.status import WAITING_DOCUMENTS
from outbox.recording.message import RecordedVersion


@dataclass(frozen=True, slots=True)
class DueDocument:
    """A document with unsent versions.

    Attributes:
        sent: The newest sent version.
        version: The newest recorded version.
        attempts: How many attempts have failed since the last success.
    """

    document: str
    bucket: int
    sent: int
    version: int
    waiting_since: datetime
    recorded_at: datetime
    attempts: int


@dataclass(frozen=True, slots=True)
class VersionChain:
    """The next unsent versions of a document, with consecutive numbers."""

    due: DueDocument
    versions: Sequence[RecordedVersion]


@dataclass(frozen=True, slots=True)
class SendFailure:
    """The reason why a version was not sent.

    Attributes:
        reason: The name of the error, for metrics.
        text: The error in words.
        outage: Whether Kafka could not be reached, so that the version is not to blame.
        late: Whether Kafka did not answer in time.
        shared: Whether Kafka refuses whole batches for this reason, so that a different version of
            the batch can be the cause.
    """

    reason: str
    text: str
    outage: bool = False
    late: bool = False
    shared: bool = False


@dataclass(frozen=True, slots=True)
class SendOutcome:
    """The result of sending a chain of versions of one document.

    Attributes:
        sent: The newest version that Kafka has confirmed. It can be older than this chain.
        recorded_at: When that version was recorded.
        failure: Why the version after `sent` was not sent; None if nothing failed.
    """

    due: DueDocument
    sent: int
    recorded_at: datetime
    failure: SendFailure | None = None


# About how many bytes of versions are read at a time.
_CHUNK_BYTES = 4 * 1024 * 1024
_LEAST_ROWS, _MOST_ROWS = 10, 1_000
# How many versions of one document are read at a time. Each is sent only after the previous one is
# confirmed.
_CHAIN_VERSIONS = 10

_COLUMNS = "key, bucket, sent, version, waiting_since, recorded_at, attempts"
# A condition that leaves out documents of which this relay has sent more than their rows say yet.
# Otherwise these could fill the LIMIT, and other documents would not be read.
_FURTHER = "version > coalesce((%(known)s::jsonb ->> key)::int, -1)"
# Retries are at most a quarter of the documents, so that they do not delay new versions.
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
# Reads rows up to and including the one with which their size exceeds the limit.
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
# The lock on the relay's row fences out a relay that has lost its buckets: another relay deletes
# the row before it takes them. If a document's row has a higher `sent` than this relay, a person
# discarded a version.
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
# Returns whether a table of versions has an unsent version.
_UNSENT = f"""
SELECT EXISTS (
    SELECT FROM {WAITING_DOCUMENTS} AS d
    JOIN {{table}} AS m ON m.document = d.key AND m.version > d.sent
)
"""  # noqa: S608 - our own constant
# If the clock was set back, retries may be further away than the longest pause. This limits them.
_LIMIT_NEXT_ATTEMPTS = """
UPDATE outbox_document SET next_attempt_at = clock_timestamp() + %(most)s * interval '1 second'
WHERE bucket = ANY(%(buckets)s::smallint[]) AND attempts > 0
    AND next_attempt_at > clock_timestamp() + %(most)s * interval '2 seconds'
"""


@dataclass(slots=True)
class DueReader:
    """A reader of due documents and their versions, which reads fewer if versions are large."""

    _rows: int = _LEAST_ROWS
    # Documents whose next version is missing in the table.
    missing: Sequence[DueDocument] = ()

    def read_due_documents(
        self,
        connection: Connection,
        buckets: Collection[int],
        skipped: Mapping[str, int],
        *,
        retries: bool = True,
    ) -> list[DueDocument]:
        """Return documents whose next version can be sent now, the longest waiting first.

        Args:
            buckets: The buckets of this relay.
            skipped: By document, the number up to which versions must not be sent now.
            retries: Whether to include documents with a failed last attempt.
        """
        if not buckets:
            return []
        rows_per_bucket = max(16, 2 * self._rows // len(buckets))
        parameters = {
            "buckets": list(buckets),
            "each": rows_per_bucket,
            "rows": self._rows,
            "retries": max(1, self._rows // 4) if retries else 0,
            "known": json.dumps(skipped),
        }
        return [DueDocument(*row) for row in connection.execute(_DUE, parameters)]

    def read_chains(
        self, connection: Connection, documents: Sequence[DueDocument]
    ) -> list[VersionChain]:
        """Return the next versions of these documents.

        The last documents are left out if the versions are too many or too large.
        """
        self.missing = ()
        if not documents:
            return []
        since = min(due.waiting_since for due in documents)
        until = max(due.recorded_at for due in documents)
        parameters = {
            "keys": [due.document for due in documents],
            "sent": [due.sent for due in documents],
            "slots": day_tables.select_slots(since, until),
            "chain": _CHAIN_VERSIONS,
            "rows": self._rows,
            "bytes": _CHUNK_BYTES,
        }
        versions_by_document: dict[str, list[RecordedVersion]] = {}
        size = count = 0
        # A prepared plan would read the tables of all days, and take four times as long.
        for *row, running_size in connection.execute(_VERSIONS, parameters, prepare=False):
            version = RecordedVersion(*row)
            versions_by_document.setdefault(version.document, []).append(version)
            size, count = int(running_size), count + 1
        chains = [
            VersionChain(due, _select_consecutive(due, versions_by_document.get(due.document, [])))
            for due in documents
        ]
        if count < self._rows and size < _CHUNK_BYTES:
            self.missing = [chain.due for chain in chains if not chain.versions]
        if count:
            self._rows = min(_MOST_ROWS, max(_LEAST_ROWS, _CHUNK_BYTES * count // max(size, 1)))
        return [chain for chain in chains if chain.versions]


def settle_outcomes(
    connection: Connection, relay: int, outcomes: Iterable[tuple[SendOutcome, float]]
) -> set[str]:
    """Write outcomes to the database, and return the documents whose outcome was written.

    The outcome of a document that a writer has locked is not written. If other relays have taken
    over the documents of this relay, nothing is written.

    Args:
        relay: The id of the relay.
        outcomes: Pairs of an outcome and the seconds before the next attempt.
    """
    rows = [
        (
            outcome.due.document,
            outcome.sent,
            outcome.recorded_at,
            _format_failure(outcome.failure),
            pause,
        )
        for outcome, pause in outcomes
    ]
    keys, sent, recorded_at, errors, pauses = map(list, zip(*rows, strict=True))
    parameters = {
        "relay": relay,
        "keys": keys,
        "sent": sent,
        "recorded_at": recorded_at,
        "errors": errors,
        "pauses": pauses,
    }
    return {key for (key,) in connection.execute(_SETTLE, parameters)}


def limit_next_attempts(
    connection: Connection, buckets: Collection[int], longest_pause: float
) -> None:
    """Make retries due in `longest_pause` seconds if they are due in more than twice this time.

    A retry can be due that far ahead if the clock was set back.
    """
    connection.execute(_LIMIT_NEXT_ATTEMPTS, {"buckets": list(buckets), "most": longest_pause})


def truncate_expired_messages(
    connection: Connection, keep_days: int, show_life: Callable[[], None]
) -> list[str]:
    """Truncate the expired tables of sent versions. Return the names of the truncated tables."""
    return day_tables.truncate_expired_tables(
        connection, "outbox_message", keep_days, _UNSENT, show_life
    )


def _select_consecutive(due: DueDocument, versions: list[RecordedVersion]) -> list[RecordedVersion]:
    """Return the versions that follow the last sent version without a gap."""
    ordered = sorted(versions, key=lambda version: version.version)
    return [
        version for number, version in enumerate(ordered, due.sent + 1) if version.version == number
    ]


def _format_failure(failure: SendFailure | None) -> str:
    return "" if failure is None else f"{failure.reason}: {failure.text}"
