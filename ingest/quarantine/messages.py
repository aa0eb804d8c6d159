"""The quarantine's SQL: lock messages for a retry; resolve, postpone or discard them."""

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from psycopg import errors
from psycopg.rows import namedtuple_row

from history.daily.window import Window
from ingest.source.message import Message
from ingest.source.names import identify_message, read_place
from ingest.store import missing_days, rejects, session
from ingest.store.batch import EntityDay
from ingest.store.ledger import Connection
from ingest.store.missing_days import DayRefusal
from ingest.store.rejects import FIRST_PAUSE_SECONDS
from ingest.store.retry_store import MessageOutcome, MissingDaysError, store_messages
from ingest.store.sqlstate import is_missing_partition

MAX_ATTEMPTS = 10
LONGEST_PAUSE_SECONDS = 86_400

Place = tuple[str, str, int]  # topic, its id, partition
OPEN = ("new", "retrying")
UNSETTLED = (*OPEN, "failed")

_POSTPONE = """
UPDATE ingest_quarantine SET status = %(status)s, attempts = %(attempts)s,
    first_reason = CASE WHEN first_reason = '' AND reason <> %(reason)s THEN reason
        ELSE first_reason END,
    first_detail = CASE WHEN first_reason = '' AND reason <> %(reason)s THEN detail
        ELSE first_detail END,
    reason = %(reason)s, detail = %(detail)s,
    entity = coalesce(nullif(%(entity)s, ''), entity),
    entity_id = coalesce(nullif(%(entity_id)s, ''), entity_id),
    version = coalesce(%(version)s, version),
    application = coalesce(nullif(%(application)s, ''), application),
    made_at = coalesce(%(made_at)s, made_at),
    next_attempt = now() + make_interval(secs => %(pause)s)
WHERE id = %(id)s
"""


@dataclass(frozen=True, slots=True)
class LockedMessage:
    """A message in quarantine, locked by the transaction that took it."""

    id: int
    topic_id: str
    attempts: int
    message: Message


# The details of ingest.source.decode begin with the field that is wrong.
FIELD = "coalesce(substring(detail from '^`([^`]{1,200})`'), '')"


@dataclass(frozen=True, slots=True)
class Selection:
    """The messages that a command or a request selects; None means any. field: that the detail
    names, as FIELD reads it; last_id: none after it."""

    ids: tuple[int, ...] | None = None
    topic: str | None = None
    reason: str | None = None
    client_id: str | None = None
    field: str | None = None
    last_id: int | None = None
    due_only: bool = False
    statuses: tuple[str, ...] = OPEN


def lock(
    connection: Connection, selection: Selection, limit: int, after: int = 0
) -> list[LockedMessage]:
    """Lock up to `limit` selected messages with an id above `after`, oldest first, without those
    that another worker has locked. They stay locked until the caller's transaction ends."""
    where, values = _where(selection)
    with connection.cursor(row_factory=namedtuple_row) as cursor:
        rows = cursor.execute(
            f"SELECT * FROM ingest_quarantine WHERE {where} AND id > %s"  # noqa: S608 - constants
            " ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED",
            [*values, after, limit],
        ).fetchall()
    return [_locked_message(row) for row in rows]


def resolve(connection: Connection, settled: Iterable[tuple[LockedMessage, str]]) -> None:
    """Settle messages as `stored`, `repeated` (stored before) or `expired` (too old by now), and
    move them in the ledger's counts. Last in its transaction: locks ledger rows in order."""
    moved: defaultdict[Place, list[tuple[int, str]]] = defaultdict(list)
    for locked, became in settled:
        message = locked.message
        moved[message.topic, locked.topic_id, message.partition].append((message.offset, became))
        connection.execute(
            "UPDATE ingest_quarantine SET status = 'resolved', outcome = %s, settled_at = now(),"
            " attempts = attempts + 1, next_attempt = NULL WHERE id = %s",
            (became, locked.id),
        )
    for place in sorted(moved):
        counted = count_in_ledger(connection, place, (offset for offset, _ in moved[place]))
        counts = Counter(became for offset, became in moved[place] if offset in counted)
        connection.execute(
            "UPDATE ingest_ledger SET quarantined = quarantined - %s, stored = stored + %s,"
            " repeated = repeated + %s, expired = expired + %s"
            " WHERE topic = %s AND topic_id = %s AND partition = %s",
            (counts.total(), *(counts[name] for name in ("stored", "repeated", "expired")), *place),
        )


def count_in_ledger(connection: Connection, place: Place, offsets: Iterable[int]) -> set[int]:
    """Those of the offsets that the ledger counts now: all, unless the partition is read again."""
    row = connection.execute(
        "SELECT first_offset, next_offset FROM ingest_ledger"
        " WHERE topic = %s AND topic_id = %s AND partition = %s FOR UPDATE",
        place,
    ).fetchone()
    if row is None:
        return set()
    first, end = int(row[0]), int(row[1])  # type: ignore[call-overload]
    return {offset for offset in offsets if first <= offset < end}


def postpone(connection: Connection, locked: LockedMessage, reason: str, detail: str) -> str:
    """Record why the message is still bad, which version it is, and when to retry; returns the new
    status. Why it came into quarantine, and which version it was found to be, stays known."""
    attempts = locked.attempts + 1
    names, where = identify_message(locked.message), read_place(locked.message)
    status = "failed" if attempts >= MAX_ATTEMPTS else "retrying"
    pause = min(FIRST_PAUSE_SECONDS * 2**attempts, LONGEST_PAUSE_SECONDS)
    connection.execute(
        _POSTPONE,
        {
            "id": locked.id,
            "status": status,
            "attempts": attempts,
            "reason": reason,
            "detail": rejects.escape_unstorable(detail),
            "pause": None if status == "failed" else pause,
            "entity": names.entity,
            "entity_id": names.id,
            "version": names.version,
            "application": where.application,
            "made_at": where.updated_at,
        },
    )
    return status


def discard(connection: Connection, selection: Selection, why: str) -> int:
    """Settle messages without storing them. They stay counted as quarantined."""
    where, values = _where(selection)
    statement = (
        "UPDATE ingest_quarantine SET status = 'discarded', outcome = %s, settled_at = now(),"  # noqa: S608 - constants
        f" next_attempt = NULL WHERE {where}"
    )
    return connection.execute(statement, [why, *values]).rowcount


def _where(selection: Selection) -> tuple[str, list[Any]]:
    terms: list[str] = ["status = ANY(%s)"]
    values: list[Any] = [list(selection.statuses)]
    if selection.ids is not None:
        terms.append("id = ANY(%s)")
        values.append(list(selection.ids))
    for term, value in (
        ("topic = %s", selection.topic),
        ("reason = %s", selection.reason),
        ("client_id = %s", selection.client_id),
        (f"{FIELD} = %s", selection.field),
        ("id <= %s", selection.last_id),
    ):
        if value is not None:
            terms.append(term)
            values.append(value)
    if selection.due_only:
        terms.append("next_attempt <= now()")
    return " AND ".join(terms), values


def _locked_message(row: Any) -> LockedMessage:
    given = rejects.headers_from_json(row.headers)
    stamp = -1 if row.timestamp is None else int(row.timestamp.timestamp() * 1000)
    message = Message(row.topic, row.partition, row.offset, stamp, row.key, row.value, given)
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


def remove_old(connection: Connection, window: Window, hold_days: int, now: datetime) -> int:
    """Remove the messages whose version, or whose arrival, is older than the window, unsettled ones
    hold_days later; the arrival of an unsettled one counts only if its day is after the window.
    Each thousand is a transaction of its own. The ledger counts them as quarantined forever.
    Returns how many they were."""
    unsettled = window.oldest - timedelta(days=hold_days)
    values = {
        "settled": _midnight(window.oldest),
        "unsettled": _midnight(unsettled),
        "newest": window.newest,
        "held": now - timedelta(days=hold_days),
        "limit": REMOVED_PER_TRANSACTION,
    }
    removed, count = 0, REMOVED_PER_TRANSACTION
    while count == REMOVED_PER_TRANSACTION:
        with connection.transaction():
            rows = connection.execute(_REMOVE, values).fetchall()
            gone: defaultdict[Place, dict[int, bool]] = defaultdict(dict)
            for topic, topic_id, partition, offset, status, outcome in rows:
                if outcome != "stored":
                    place = str(topic), str(topic_id), int(partition)  # type: ignore[call-overload]
                    gone[place][int(offset)] = status != "resolved"  # type: ignore[call-overload]
            for place in sorted(gone):
                _keep_count(connection, place, gone[place])
        count = len(rows)
        removed += count
    return removed


def _keep_count(connection: Connection, place: Place, gone: Mapping[int, bool]) -> None:
    """Note in the ledger what was removed. gone: by offset, whether the message is still counted as
    quarantined. That it was not stored is not known any more."""
    counted = count_in_ledger(connection, place, (at for at, counts in gone.items() if counts))
    connection.execute(
        "UPDATE ingest_ledger SET quarantine_removed = quarantine_removed + %s,"
        " noted_from = greatest(noted_from, least(%s, next_offset))"
        " WHERE topic = %s AND topic_id = %s AND partition = %s",
        (len(counted), max(gone) + 1, *place),
    )


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


MESSAGES_PER_TRANSACTION = 100
# A consumer of the same rows may cause a deadlock; maintain may drop a day before the insert.
CONFLICT_ATTEMPTS = 5


def retry(
    connection: Connection, selection: Selection, window: Callable[[], Window]
) -> Iterator[Counter[str]]:
    """Retry the selected messages, MESSAGES_PER_TRANSACTION at a time, and again after a conflict
    with another writer. Yields the outcomes of each transaction: `stored`, `repeated`, `expired`,
    or the new status (`retrying`, `failed`). connection: in autocommit mode. window: asked each
    time. Raises psycopg.Error; what was yielded is committed."""
    refused: dict[EntityDay, DayRefusal] = {}
    after = conflicts = 0
    while True:
        current = window()
        try:
            with connection.transaction():
                session.apply_settings_on_nodes(connection)
                locked = lock(connection, selection, MESSAGES_PER_TRANSACTION, after)
                messages = [each.message for each in locked]
                results = store_messages(connection, messages, current, refused)
                outcomes = _settle(connection, locked, results)
        except MissingDaysError as missing:
            # Outside of the transaction, and in the window of now: midnight may have passed.
            refused |= missing_days.create_partitions(connection, missing.days, window())
        except (errors.CheckViolation, errors.DeadlockDetected) as error:
            conflicts += 1
            passes = isinstance(error, errors.DeadlockDetected) or is_missing_partition(error)
            if conflicts == CONFLICT_ATTEMPTS or not passes:
                raise
            time.sleep(random.uniform(0.05, 0.5))  # noqa: S311 - spread, not secrecy
        else:
            if not locked:
                return
            after, conflicts = locked[-1].id, 0
            yield outcomes


def _settle(
    connection: Connection, locked: Iterable[LockedMessage], results: Iterable[MessageOutcome]
) -> Counter[str]:
    """What became of the messages. The ledger is updated last, in the order of its partitions."""
    of_message = {id(each.message): each for each in locked}
    settled: list[tuple[LockedMessage, str]] = []
    outcomes: Counter[str] = Counter()
    for message, became, reject in results:
        held = of_message[id(message)]
        if reject is None:
            settled.append((held, became))
            outcomes[became] += 1
        else:
            outcomes[postpone(connection, held, reject.reason, reject.detail)] += 1
    resolve(connection, settled)
    return outcomes
