"""Keeps an answer: versions, where they came from, and what need not be asked again; all in one
transaction, so that a process that is killed has kept all of it or nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import NamedTuple

from django.conf import settings
from psycopg import sql

from annals.healing.answer import Answer, Range, count
from annals.healing.pace import pause
from annals.healing.wanted import Asked, Document
from history.entities import Entity
from ingest.source.message import Message
from ingest.source.names import declared, named
from ingest.store import outside, rejects
from ingest.store.batch import Claim, Reject
from ingest.store.ledger import Connection
from ingest.store.outside import Attempt, Outside

ANOTHER = "it gave another version than the one that was asked for"
ANOTHER_SERVICE = "it gave a version of a service that its client_ids do not name"
TOO_OLD = "it is older than the days that are kept"

_STORED = """
SELECT version, (extract(epoch FROM updated_at) * 1000000)::bigint FROM {table}
WHERE id = %s AND version = ANY(%s)
"""
# The document is judged again: then its gap closes. `judged` tells whether the lowest is a new one.
_ARRIVED = """
UPDATE gap_document SET versions = versions + %(versions)s::int8multirange,
    lowest = least(lowest, lower(%(versions)s::int8multirange))
WHERE entity = %(entity)s AND id = %(id)s
"""
_PENDING = "INSERT INTO gap_pending (entity, id) VALUES (%(entity)s, %(id)s) ON CONFLICT DO NOTHING"
_KNOWN = """
SELECT FROM gap_answer WHERE entity = %(entity)s AND document = %(id)s AND source = %(source)s
"""
# What an answer covers is not as it was before: a source may have again what it did not have.
# In a form that Citus runs: no volatile functions after DO UPDATE, no CASE of a value, no CTE.
_ANSWER = """
INSERT INTO gap_answer AS a (entity, document, source, gone, refused, detail, asked_at, attempts,
    next_attempt_at)
VALUES (%(entity)s, %(id)s, %(source)s, %(gone)s::int8multirange, %(refused)s::int8multirange,
    %(detail)s, now(), 0, now() + make_interval(secs => %(pause)s::float8))
ON CONFLICT (entity, document, source) DO UPDATE SET
    gone = a.gone - %(covered)s::int8multirange + excluded.gone,
    refused = a.refused - %(covered)s::int8multirange + excluded.refused,
    detail = coalesce(nullif(excluded.detail, ''), a.detail),
    asked_at = excluded.asked_at, attempts = 0, next_attempt_at = excluded.next_attempt_at
"""
_COUNT = """
INSERT INTO gap_source AS s (name, answered_at, asked, recovered, refused, unanswerable)
VALUES (%(source)s, now(), %(asked)s, %(recovered)s, %(refused)s, %(unanswerable)s)
ON CONFLICT (name) DO UPDATE SET attempts = 0, next_attempt_at = NULL,
    answered_at = excluded.answered_at,
    asked = s.asked + excluded.asked,
    recovered = s.recovered + excluded.recovered, refused = s.refused + excluded.refused,
    unanswerable = s.unanswerable + excluded.unanswerable
"""


@dataclass(slots=True)
class Kept:
    """What became of versions. there: they came meanwhile. refused: not what was asked for, or
    not storable; those in quarantine among them. unanswerable: the source does not have them."""

    asked: int = 0
    recovered: int = 0
    there: int = 0
    refused: int = 0
    quarantined: int = 0
    unanswerable: int = 0
    waiting: int = 0

    def add(self, other: Kept) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


class _Given(NamedTuple):
    """A version that was given. moment: its updatedAt in microseconds; None if it is not good."""

    number: int
    message: Message
    moment: int | None


class _WrongVersionError(Exception):
    """A version is not one to keep. The message says why."""


def keep(outside: Outside, source: Asked, document: Document, answer: Answer) -> Kept:
    """Store what an answer brings. Raises psycopg.Error."""
    return outside.transaction(partial(_keep, source, document, answer))


def topic_of(entity: Entity) -> str:
    """The topic as whose message an answer is decoded: the first of which no other envelope is
    declared, because an outbox sends the contract's."""
    shapes = declared(settings.ANNALS.envelopes_file)
    return next((each for each in entity.topics if each not in shapes), entity.topics[0])


def _keep(asked: Asked, document: Document, answer: Answer, attempt: Attempt) -> Kept:
    connection, topic, source = attempt.connection, topic_of(document.entity), asked.name
    refused = dict(answer.refused)
    given: dict[int, _Given] = {}
    for number, value in answer.values.items():
        message = outside.message(topic, source, document.id, number, value)
        try:
            moment = _moment(message, asked, document, number, attempt)
            given[id(message)] = _Given(number, message, moment)
        except _WrongVersionError as error:
            refused[number] = str(error)
    arrived = _elsewhere(connection, document, given.values())
    messages = [each.message for each in given.values() if each.number not in arrived]
    bad: list[Reject] = []
    recovered = 0
    for message, became, reject in attempt.store(messages):
        number = given[id(message)].number
        if reject is not None:
            bad.append(reject)
            refused[number] = f"{reject.reason}: {reject.detail}"
        elif became == "expired":
            refused[number] = TOO_OLD
        else:
            arrived.add(number)
            recovered += became == "stored"
    place = outside.place(topic)
    rejects.add(connection, bad, {place: Claim(place, 0, 0, 0, False)})
    _note(connection, source, document, answer, arrived, refused)
    kept = Kept(
        asked=count(answer.covered),
        recovered=recovered,
        there=len(arrived) - recovered,
        refused=len(refused),
        quarantined=len(bad),
        unanswerable=count(answer.gone),
        waiting=count(answer.waiting),
    )
    connection.execute(_COUNT, {"source": source, **asdict(kept)})
    return kept


def _moment(
    message: Message, source: Asked, document: Document, number: int, attempt: Attempt
) -> int | None:
    """The moment of a message; None if it is not good. Raises _WrongVersionError if it is not the
    version that was asked for, as far as it says what it is, or of a service for which the source
    does not speak."""
    record = attempt.read(message)
    if record is None:
        name = named(message, declared(settings.ANNALS.envelopes_file))
        if name.id != document.id or name.version not in (None, number):
            raise _WrongVersionError(ANOTHER)
        return None
    if (record.entity, record.id, record.version) != (document.entity.name, document.id, number):
        raise _WrongVersionError(ANOTHER)
    if source.client_ids is not None and record.client_id not in source.client_ids:
        raise _WrongVersionError(ANOTHER_SERVICE)
    return record.updated_at


def _elsewhere(connection: Connection, document: Document, given: Collection[_Given]) -> set[int]:
    """Those of the versions that are stored with another time only: they came meanwhile, and one
    more would give their numbers twice."""
    statement = sql.SQL(_STORED).format(table=sql.Identifier(document.entity.table))
    numbers = [each.number for each in given]
    stored = set(connection.execute(statement, (document.id, numbers)).fetchall())
    there = {number for number, _ in stored}
    return {
        each.number
        for each in given
        if each.moment is not None
        and each.number in there
        and (each.number, each.moment) not in stored
    }


def _note(
    connection: Connection,
    source: str,
    document: Document,
    answer: Answer,
    arrived: Collection[int],
    refused: Mapping[int, str],
) -> None:
    place = {"entity": document.entity.name, "id": document.id}
    if arrived:
        versions = _multirange(_single(arrived))
        if connection.execute(_ARRIVED, {**place, "versions": versions}).rowcount:
            connection.execute(_PENDING, place)
    values = {
        **place,
        "source": source,
        "gone": _multirange(answer.gone),
        "refused": _multirange(_single(refused)),
        "covered": _multirange(answer.covered),
        "detail": rejects.storable_text(next(reversed(list(refused.values())), "")),
        "pause": pause(1) if answer.waiting else None,
    }
    remember = bool(answer.gone or refused or answer.waiting)
    if remember or connection.execute(_KNOWN, values).rowcount:
        connection.execute(_ANSWER, values)


def _single(numbers: Iterable[int]) -> list[Range]:
    return [(number, number) for number in numbers]


def _multirange(ranges: Iterable[Range]) -> str:
    """PostgreSQL's text of an int8multirange."""
    return "{" + ",".join(f"[{first},{last}]" for first, last in ranges) + "}"
