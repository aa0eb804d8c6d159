"""What is remembered of sources that fail: each next attempt comes later than the one before."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from annals.healing.pace import pause
from annals.healing.wanted import Document
from ingest.store.ledger import Connection

_FAILED = """
INSERT INTO gap_source AS s (name, attempts, next_attempt_at, last_error, failed_at)
VALUES (%(source)s, 1, now() + make_interval(secs => %(pause)s::float8), %(why)s, now())
ON CONFLICT (name) DO UPDATE SET attempts = s.attempts + 1,
    next_attempt_at = excluded.next_attempt_at, last_error = excluded.last_error,
    failed_at = excluded.failed_at
"""
_WRONG = """
INSERT INTO gap_answer AS a (entity, document, source, gone, refused, detail, asked_at, attempts,
    next_attempt_at)
VALUES (%(entity)s, %(id)s, %(source)s, '{}', '{}', %(why)s, now(), 1,
    now() + make_interval(secs => %(pause)s::float8))
ON CONFLICT (entity, document, source) DO UPDATE SET detail = excluded.detail,
    asked_at = excluded.asked_at,
    attempts = a.attempts + 1, next_attempt_at = excluded.next_attempt_at
"""
_REMEMBER = """
INSERT INTO gap_source (name, last_error, failed_at) VALUES (%(source)s, %(why)s, now())
ON CONFLICT (name) DO UPDATE SET last_error = excluded.last_error,
    failed_at = excluded.failed_at
"""
_FORGET = """
UPDATE gap_source SET attempts = 0, next_attempt_at = NULL WHERE name <> ALL(%s) AND attempts > 0
"""
_ATTEMPTS = "SELECT attempts FROM gap_source WHERE name = %s"
_ATTEMPTS_FOR = """
SELECT attempts FROM gap_answer WHERE entity = %s AND document = %s AND source = %s
"""


def not_before(connection: Connection, source: str) -> datetime | None:
    """Until when a source is left alone; None if it may be asked now."""
    row = connection.execute(
        "SELECT next_attempt_at FROM gap_source WHERE name = %s AND next_attempt_at > now()",
        [source],
    ).fetchone()
    return row[0] if row and isinstance(row[0], datetime) else None


def forget_others(connection: Connection, sources: Sequence[str]) -> None:
    """Sources that are not asked any more do not count as failing."""
    connection.execute(_FORGET, [list(sources)])


def failed(connection: Connection, source: str, why: str, wait: int = 0) -> None:
    """A source is left alone for a while. wait: seconds that it asked for."""
    attempts = _number(connection.execute(_ATTEMPTS, [source]).fetchone()) + 1
    values = {"source": source, "why": why, "pause": max(wait, pause(attempts))}
    connection.execute(_FAILED, values)


def wrong(connection: Connection, source: str, document: Document, why: str) -> None:
    """A source gave a wrong answer for a document: it is asked for this one later."""
    place = {"entity": document.entity.name, "id": document.id, "source": source}
    attempts = _number(connection.execute(_ATTEMPTS_FOR, list(place.values())).fetchone()) + 1
    with connection.transaction():
        connection.execute(_WRONG, {**place, "why": why, "pause": pause(attempts)})
        connection.execute(_REMEMBER, {"source": source, "why": why})


def _number(row: tuple[object, ...] | None) -> int:
    return int(row[0]) if row else 0  # type: ignore[call-overload]
