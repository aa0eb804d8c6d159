"""The quarantine's SQL: lock messages for a retry; resolve, postpone or discard them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from psycopg.rows import namedtuple_row

from ingest.source.message import Message
from ingest.source.names import declared, named
from ingest.store import headers_json
from ingest.store.ledger import Connection
from ingest.store.rejects import FIRST_PAUSE_SECONDS

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
    next_attempt = now() + make_interval(secs => %(pause)s)
WHERE id = %(id)s
"""


@dataclass(frozen=True, slots=True)
class LockedMessage:
    """A message in quarantine, locked by the transaction that took it."""

    id: int
    topic_id: str
    reason: str
    attempts: int
    message: Message


@dataclass(frozen=True, slots=True)
class Selection:
    """The messages that a command selects; None means any."""

    ids: tuple[int, ...] | None = None
    topic: str | None = None
    reason: str | None = None
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
    """Settle messages that were stored (`stored`), were stored before (`repeated`) or are too old
    by now (`expired`), and move them in the ledger's counts.

    To be called last in the transaction: it locks ledger rows, always in the same order.
    """
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
    """Those of the offsets that the ledger counts now: all, unless the partition is read again.
    Locks the ledger row until the transaction ends."""
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
    """Record why the message is still bad, which version it is, and when to retry. Returns the new
    status. A consumer of an earlier release did not record the version.

    Why it came into quarantine, and which version it is, stays known: whoever retries may have
    other kinds and envelopes declared than the consumer had.
    """
    attempts = locked.attempts + 1
    names = named(locked.message, declared(settings.ANNALS.envelopes_file))
    status = "failed" if attempts >= MAX_ATTEMPTS else "retrying"
    pause = min(FIRST_PAUSE_SECONDS * 2**attempts, LONGEST_PAUSE_SECONDS)
    connection.execute(
        _POSTPONE,
        {
            "id": locked.id,
            "status": status,
            "attempts": attempts,
            "reason": reason,
            "detail": headers_json.storable_text(detail),
            "pause": None if status == "failed" else pause,
            "entity": names.entity,
            "entity_id": names.id,
            "version": names.version,
        },
    )
    return status


def discard(connection: Connection, ids: Iterable[int], why: str) -> int:
    """Settle messages without storing them. They stay counted as quarantined."""
    return connection.execute(
        "UPDATE ingest_quarantine SET status = 'discarded', outcome = %s, settled_at = now(),"
        " next_attempt = NULL WHERE id = ANY(%s) AND status IN ('new', 'retrying', 'failed')",
        (why, list(ids)),
    ).rowcount


def _where(selection: Selection) -> tuple[str, list[Any]]:
    terms: list[str] = ["status = ANY(%s)"]
    values: list[Any] = [list(selection.statuses)]
    if selection.ids is not None:
        terms.append("id = ANY(%s)")
        values.append(list(selection.ids))
    if selection.topic is not None:
        terms.append("topic = %s")
        values.append(selection.topic)
    if selection.reason is not None:
        terms.append("reason = %s")
        values.append(selection.reason)
    if selection.due_only:
        terms.append("next_attempt <= now()")
    return " AND ".join(terms), values


def _locked_message(row: Any) -> LockedMessage:
    given = headers_json.from_json(row.headers)
    stamp = -1 if row.timestamp is None else int(row.timestamp.timestamp() * 1000)
    message = Message(row.topic, row.partition, row.offset, stamp, row.key, row.value, given)
    return LockedMessage(row.id, row.topic_id, row.reason, row.attempts, message)
