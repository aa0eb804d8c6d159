"""Retries, discards and removes messages in quarantine, with the SQL for this.

Begin with `retry_messages`, `discard_messages` and `remove_old_messages`.
"""

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, LiteralString, NamedTuple

from psycopg import errors
from psycopg.rows import namedtuple_row

from history.store.days.window import Window
from ingest.messages.identity import find_parent_and_time, identify_message
from ingest.messages.message import KafkaMessage
from ingest.store import late_versions, missing_days, rejects, session
from ingest.store.batch import BadMessage, EntityDay
from ingest.store.ledger import Connection
from ingest.store.missing_days import DayRefusal
from ingest.store.rejects import FIRST_PAUSE_SECONDS
from ingest.store.retry_store import MessageOutcome, MissingDaysError, store_messages
from ingest.store.sqlstate import is_missing_partition

MAX_ATTEMPTS = 10
LONGEST_PAUSE_SECONDS = 86_400


class LedgerKey(NamedTuple):
    """The key of a row of the ledger."""

    topic: str
    topic_id: str
    partition: int


class OffsetRange(NamedTuple):
    """Offsets [start, end)."""

    start: int
    end: int

    def has(self, offset: int) -> bool:
        """Return whether an offset is in the range."""
        return self.start <= offset < self.end


OPEN = ("new", "retrying")
UNSETTLED = (*OPEN, "failed")

# Records a failed retry. The first reason is kept. If a field of the version cannot be read now,
# but was read at an earlier attempt, the earlier value is kept.
_POSTPONE: Final[LiteralString] = """
UPDATE ingest_quarantine SET status = %(status)s, attempts = %(attempts)s,
    first_reason = CASE WHEN first_reason = '' AND reason <> %(reason)s THEN reason
        ELSE first_reason END,
    first_detail = CASE WHEN first_reason = '' AND reason <> %(reason)s THEN detail
        ELSE first_detail END,
    first_explanation = CASE WHEN first_reason = '' AND reason <> %(reason)s THEN explanation
        ELSE first_explanation END,
    reason = %(reason)s, detail = %(detail)s, field = %(field)s, explanation = %(explanation)s,
    entity = coalesce(nullif(%(entity)s, ''), entity),
    entity_id = coalesce(nullif(%(entity_id)s, ''), entity_id),
    version = coalesce(%(version)s, version),
    application = coalesce(nullif(%(application)s, ''), application),
    made_at = coalesce(%(made_at)s, made_at),
    next_attempt = now() + make_interval(secs => %(pause)s)
WHERE id = %(id)s
"""
# Settles a message as stored, repeated or expired.
_RESOLVE: Final[LiteralString] = """
UPDATE ingest_quarantine SET status = 'resolved', outcome = %(outcome)s, settled_at = now(),
    attempts = attempts + 1, next_attempt = NULL
WHERE id = %(id)s
"""
# Moves settled messages of one topic partition from the count `quarantined` to other counts.
_MOVE_COUNTS: Final[LiteralString] = """
UPDATE ingest_ledger SET quarantined = quarantined - %(total)s, stored = stored + %(stored)s,
    repeated = repeated + %(repeated)s, expired = expired + %(expired)s
WHERE topic = %(topic)s AND topic_id = %(topic_id)s AND partition = %(partition)s
"""
# The range of offsets of one topic partition that the ledger counts. Locks the ledger row.
_COUNTED_OFFSETS: Final[LiteralString] = """
SELECT first_offset, next_offset FROM ingest_ledger
WHERE topic = %(topic)s AND topic_id = %(topic_id)s AND partition = %(partition)s
FOR UPDATE
"""
# Counts removed messages. Before `noted_from`, the tables no longer show which offsets were not
# stored.
_NOTE_REMOVED: Final[LiteralString] = """
UPDATE ingest_ledger SET quarantine_removed = quarantine_removed + %(count)s,
    noted_from = greatest(noted_from, least(%(end)s, next_offset))
WHERE topic = %(topic)s AND topic_id = %(topic_id)s AND partition = %(partition)s
"""


@dataclass(frozen=True, slots=True)
class LockedMessage:
    """A message in quarantine that the current transaction has locked."""

    id: int
    topic_id: str
    attempts: int
    message: KafkaMessage


@dataclass(frozen=True, slots=True)
class MessageSelection:
    """The messages that a command or a request selects; None means any.

    Attributes:
        ids: The ids of the messages.
        topic: The topic of the messages.
        reason: The code of the reason.
        client_id: The service that sent the messages.
        field: The field that is wrong.
        last_id: The highest id to select.
        due_only: Whether to select only messages that are due for the next attempt.
        statuses: The statuses of the messages.
    """

    ids: tuple[int, ...] | None = None
    topic: str | None = None
    reason: str | None = None
    client_id: str | None = None
    field: str | None = None
    last_id: int | None = None
    due_only: bool = False
    statuses: tuple[str, ...] = OPEN


def lock_messages(
    connection: Connection, selection: MessageSelection, limit: int, after: int = 0
) -> list[LockedMessage]:
    """Lock at most `limit` of the selected messages, and return them in the order of their ids.

    Messages that another session has locked are left out. The locks last until the caller's
    transaction ends.

    Args:
        after: Messages with this id or a lower one are left out.
    """
    where, values = _build_condition(selection)
    with connection.cursor(row_factory=namedtuple_row) as cursor:
        rows = cursor.execute(
            f"SELECT * FROM ingest_quarantine WHERE {where} AND id > %(after)s"  # noqa: S608 - constants
            " ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED",
            {**values, "after": after, "limit": limit},
        ).fetchall()
    return [_make_locked_message(row) for row in rows]


def resolve_messages(connection: Connection, settled: Iterable[tuple[LockedMessage, str]]) -> None:
    """Settle messages as `stored`, `repeated` or `expired`, in the quarantine and in the ledger.

    Before this call the ledger counts the messages as quarantined. Call it after the rows are
    stored: it locks rows of the ledger, and consumers wait for these locks.

    Args:
        settled: Pairs of a message and its outcome.
    """
    outcomes_by_key: defaultdict[LedgerKey, list[tuple[int, str]]] = defaultdict(list)
    for locked, outcome in settled:
        message = locked.message
        key = LedgerKey(message.topic, locked.topic_id, message.partition)
        outcomes_by_key[key].append((message.offset, outcome))
        connection.execute(_RESOLVE, {"outcome": outcome, "id": locked.id})
    for key, outcomes in sorted(outcomes_by_key.items()):
        counted = lock_counted_offsets(connection, key)
        counts = Counter(outcome for offset, outcome in outcomes if counted.has(offset))
        connection.execute(
            _MOVE_COUNTS,
            {
                **key._asdict(),
                "total": counts.total(),
                "stored": counts["stored"],
                "repeated": counts["repeated"],
                "expired": counts["expired"],
            },
        )


def lock_counted_offsets(connection: Connection, key: LedgerKey) -> OffsetRange:
    """Lock a row of the ledger, and return the range of offsets that the row counts.

    The range ends at the next offset to read. While a topic partition is being read again, the
    range has only the offsets that were read again. Without such a row, the range is empty.
    """
    row = connection.execute(_COUNTED_OFFSETS, key._asdict()).fetchone()
    if row is None:
        return OffsetRange(0, 0)
    return OffsetRange(int(row[0]), int(row[1]))  # type: ignore[call-overload]


def postpone_message(connection: Connection, locked: LockedMessage, bad_message: BadMessage) -> str:
    """Record that a quarantined message is still bad, and plan the next attempt.

    The quarantine keeps the first reason and the reason of this attempt. If this attempt cannot
    read the document, version, application or moment, the value from an earlier attempt is kept.

    Returns:
        The new status.
    """
    attempts = locked.attempts + 1
    identity = identify_message(locked.message)
    parent_and_time = find_parent_and_time(locked.message)
    status = "failed" if attempts >= MAX_ATTEMPTS else "retrying"
    pause = min(FIRST_PAUSE_SECONDS * 2**attempts, LONGEST_PAUSE_SECONDS)
    connection.execute(
        _POSTPONE,
        {
            "id": locked.id,
            "status": status,
            "attempts": attempts,
            **rejects.make_reason_columns(bad_message),
            "pause": None if status == "failed" else pause,
            "entity": identity.entity,
            "entity_id": identity.id,
            "version": identity.version,
            "application": parent_and_time.application,
            "made_at": parent_and_time.updated_at,
        },
    )
    return status


def discard_messages(connection: Connection, selection: MessageSelection, reason: str) -> int:
    """Settle messages without storing them. The ledger still counts them as quarantined.

    Returns:
        The number of messages.
    """
    where, values = _build_condition(selection)
    statement = (
        "UPDATE ingest_quarantine SET status = 'discarded', outcome = %(outcome)s,"  # noqa: S608 - constants
        " settled_at = now(),"
        f" next_attempt = NULL WHERE {where}"
    )
    return connection.execute(statement, {**values, "outcome": reason}).rowcount


def _build_condition(selection: MessageSelection) -> tuple[LiteralString, dict[str, Any]]:
    """Return the condition of a selection in SQL, and its parameters."""
    terms: list[LiteralString] = ["status = ANY(%(statuses)s)"]
    optional_terms: dict[LiteralString, tuple[LiteralString, Any]] = {
        "ids": ("id = ANY(%(ids)s)", None if selection.ids is None else list(selection.ids)),
        "topic": ("topic = %(topic)s", selection.topic),
        "reason": ("reason = %(reason)s", selection.reason),
        "client_id": ("client_id = %(client_id)s", selection.client_id),
        "field": ("field = %(field)s", selection.field),
        "last_id": ("id <= %(last_id)s", selection.last_id),
    }
    parameters: dict[str, Any] = {"statuses": list(selection.statuses)}
    for name, (term, value) in optional_terms.items():
        if value is not None:
            terms.append(term)
            parameters[name] = value
    if selection.due_only:
        terms.append("next_attempt <= now()")
    return " AND ".join(terms), parameters


def _make_locked_message(row: Any) -> LockedMessage:
    headers = rejects.headers_from_json(row.headers)
    stamp = -1 if row.timestamp is None else int(row.timestamp.timestamp() * 1000)
    message = KafkaMessage(row.topic, row.partition, row.offset, stamp, row.key, row.value, headers)
    return LockedMessage(row.id, row.topic_id, row.attempts, message)


REMOVED_PER_TRANSACTION = 1_000

_REMOVE = """
DELETE FROM ingest_quarantine WHERE id = ANY(ARRAY(
    SELECT id FROM ingest_quarantine
    WHERE (status IN ('resolved', 'discarded') AND (day < %(settled)s OR first_seen < %(settled)s))
        OR (day < %(unsettled)s AND first_seen < %(held)s)
        OR (day > %(newest)s AND first_seen < %(unsettled)s)
    ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED))
RETURNING topic, topic_id, partition, "offset", status, outcome
"""


def remove_old_messages(
    connection: Connection, window: Window, hold_days: int, now: datetime
) -> int:
    """Remove old messages from the quarantine, REMOVED_PER_TRANSACTION in each transaction.

    A message is old in each of these cases:

    - The message is settled, and the day of its version or of its arrival in quarantine is before
      the window.
    - The day of its version is more than `hold_days` before the window, and the message arrived in
      quarantine more than `hold_days` ago.
    - The day of its version is after the window, and the message arrived in quarantine more than
      `hold_days` before the window.

    The ledger still counts a removed message as quarantined if it was discarded or never settled.

    Returns:
        The number of removed messages.
    """
    unsettled = window.oldest - timedelta(days=hold_days)
    values = {
        "settled": _get_midnight(window.oldest),
        "unsettled": _get_midnight(unsettled),
        "newest": window.newest,
        "held": now - timedelta(days=hold_days),
        "limit": REMOVED_PER_TRANSACTION,
    }
    removed, count = 0, REMOVED_PER_TRANSACTION
    while count == REMOVED_PER_TRANSACTION:
        with connection.transaction():
            rows = connection.execute(_REMOVE, values).fetchall()
            removed_by_key: defaultdict[LedgerKey, dict[int, bool]] = defaultdict(dict)
            for topic, topic_id, partition, offset, status, outcome in rows:
                if outcome != "stored":
                    key = LedgerKey(str(topic), str(topic_id), int(partition))  # type: ignore[call-overload]
                    removed_by_key[key][int(offset)] = status != "resolved"  # type: ignore[call-overload]
            for key, removed_offsets in sorted(removed_by_key.items()):
                _note_removed(connection, key, removed_offsets)
        count = len(rows)
        removed += count
    return removed


def _note_removed(connection: Connection, key: LedgerKey, removed: Mapping[int, bool]) -> None:
    """Note in the ledger that messages of one topic partition were removed from the quarantine.

    The column noted_from of the ledger becomes the offset after the last removed message, unless it
    is higher already. From the offset noted_from on, the tables ingest_unstored and
    ingest_quarantine still list every message that was not stored.

    Args:
        removed: For the offset of each removed message, whether the ledger counts the message as
            quarantined.
    """
    counted = lock_counted_offsets(connection, key)
    count = sum(
        is_quarantined and counted.has(offset) for offset, is_quarantined in removed.items()
    )
    connection.execute(_NOTE_REMOVED, {**key._asdict(), "count": count, "end": max(removed) + 1})


def _get_midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


MESSAGES_PER_TRANSACTION = 100
# How often a transaction is tried. It can deadlock with a consumer that stores the same rows, and
# `annals partitions maintain` may drop a day before the insert.
CONFLICT_ATTEMPTS = 5


def retry_messages(
    connection: Connection, selection: MessageSelection, window: Callable[[], Window]
) -> Iterator[Counter[str]]:
    """Retry the selected messages, MESSAGES_PER_TRANSACTION in each transaction.

    A transaction that conflicts with another writer is tried again.

    Args:
        connection: A connection that must be in autocommit mode.
        selection: The messages to retry.
        window: Returns the days that are kept. Called for each transaction.

    Yields:
        After each commit, the number of messages by outcome (`stored`, `repeated`, `expired`) or,
        if they are still bad, by new status (`retrying`, `failed`).

    Raises:
        psycopg.Error: PostgreSQL refused a transaction.
    """
    refused: dict[EntityDay, DayRefusal] = {}
    after = conflicts = 0
    while True:
        current = window()
        try:
            with connection.transaction():
                session.apply_settings_on_nodes(connection)
                locked = lock_messages(connection, selection, MESSAGES_PER_TRANSACTION, after)
                messages = [locked_message.message for locked_message in locked]
                results = store_messages(connection, messages, current, refused)
                outcomes = _settle_messages(connection, locked, results)
                stored_rows = [result.stored_row for result in results if result.stored_row]
                late_versions.note_late_versions(connection, stored_rows, ())
        except MissingDaysError as missing:
            # The transaction is rolled back. The window is computed again, because midnight may
            # have passed.
            refused |= missing_days.create_partitions(connection, missing.days, window())
        except (errors.CheckViolation, errors.DeadlockDetected) as error:
            conflicts += 1
            is_temporary = isinstance(error, errors.DeadlockDetected) or is_missing_partition(error)
            if conflicts == CONFLICT_ATTEMPTS or not is_temporary:
                raise
            time.sleep(random.uniform(0.05, 0.5))  # noqa: S311 - spread, not secrecy
        else:
            if not locked:
                return
            after, conflicts = locked[-1].id, 0
            yield outcomes


def _settle_messages(
    connection: Connection, locked: Iterable[LockedMessage], results: Iterable[MessageOutcome]
) -> Counter[str]:
    """Resolve or postpone the messages, and count the outcomes."""
    locked_by_message = {id(locked_message.message): locked_message for locked_message in locked}
    settled: list[tuple[LockedMessage, str]] = []
    outcomes: Counter[str] = Counter()
    for result in results:
        locked_message = locked_by_message[id(result.message)]
        if result.bad_message is None:
            settled.append((locked_message, result.outcome))
            outcomes[result.outcome] += 1
        else:
            outcomes[postpone_message(connection, locked_message, result.bad_message)] += 1
    resolve_messages(connection, settled)
    return outcomes
