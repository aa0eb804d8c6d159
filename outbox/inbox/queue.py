"""The queue of messages in the database: whose turn it is, and what became of an attempt."""

import json
import logging
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db import connections, transaction

from outbox import days
from outbox.database import connect
from outbox.days import SLOTS
from outbox.inbox.message import Handler, Headers, Message, name_of

logger = logging.getLogger(__name__)

# Consumers store one after the other: ids grow in the order of commits.
_LOCK = 0x696E626F78
# A lock tells nothing in a snapshot of before it. An anti join by the indexes. A frozen consumer
# holds the others up no longer than this.
_PLAN = """
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off;
SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = '10s'
"""
# The first message of a chain is due at once, the others when the one before is processed.
_AT_ONCE = "timestamptz 'epoch'"
_STORE = f"""
WITH given AS (
    SELECT DISTINCT ON (handler, identity) * FROM unnest(%s::text[], %s::text[], %s::text[],
        %s::text[], %s::int[], %s::bigint[], %s::bytea[], %s::bytea[], %s::text[],
        %s::timestamptz[])
        WITH ORDINALITY AS m (handler, identity, chain, topic, partition, "offset", key, value,
            headers, sent_at, place)
    ORDER BY handler, identity, place
), fresh AS (
    SELECT * FROM given WHERE NOT EXISTS (
        SELECT FROM inbox_done AS d
        WHERE d.handler = given.handler AND d.identity = given.identity
    ) AND NOT EXISTS (
        SELECT FROM inbox_message AS w
        WHERE w.handler = given.handler AND w.identity = given.identity
    )
)
INSERT INTO inbox_message (handler, identity, chain, topic, partition, "offset", key, value,
    headers, sent_at, received_at, state, due_at)
SELECT handler, identity, chain, topic, partition, "offset", key, value, headers::jsonb, sent_at,
    clock_timestamp(), 'new', CASE WHEN row_number() OVER (
        PARTITION BY handler, chain ORDER BY place) = 1 THEN {_AT_ONCE} END
FROM fresh ORDER BY place
RETURNING handler
"""  # noqa: S608 - our own constants


def store(
    messages: Sequence[Message], handlers: Mapping[str, Handler], alias: str
) -> Counter[tuple[str, str]]:
    """Store messages, in their order. Returns how many were stored and how many were there before
    or are processed, by handler and `stored` or `repeated`."""
    rows = [_row(each, message) for message in messages for each in _for(message, handlers)]
    counts: Counter[tuple[str, str]] = Counter()
    if not rows:
        return counts
    counts.update((row[0], "repeated") for row in rows)
    with transaction.atomic(using=alias, durable=True), connections[alias].cursor() as cursor:
        cursor.execute(_PLAN)
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        cursor.execute(_STORE, [list(column) for column in zip(*rows, strict=True)])
        stored = Counter(handler for (handler,) in cursor.fetchall())
    for handler, count in stored.items():
        counts[handler, "stored"] = count
        counts[handler, "repeated"] -= count
    return +counts


def headers_from(kept: Iterable[Sequence[str | None]]) -> Headers:
    """Headers as inbox_message has them."""
    return tuple((name or "", None if value is None else b64decode(value)) for name, value in kept)


def _for(message: Message, handlers: Mapping[str, Handler]) -> Iterable[Handler]:
    return (each for each in handlers.values() if message.topic in each.topics)


def _row(handler: Handler, message: Message) -> tuple[Any, ...]:
    headers = [
        (storable(name), None if value is None else b64encode(value).decode())
        for name, value in message.headers
    ]
    return (
        handler.name,
        _identity(handler, message),
        message.chain,
        message.topic,
        message.partition,
        message.offset,
        message.key,
        message.value,
        json.dumps(headers),
        message.sent_at,
    )


def storable(text: str) -> str:
    """A text without NUL and half characters, which PostgreSQL does not take."""
    return text.encode("utf-8", "replace").decode().replace("\0", "?")


def _identity(handler: Handler, message: Message) -> str:
    if handler.key is None:
        return message.identity
    try:
        key = handler.key(message)
        if key.strip():
            return name_of(key)
    except (Exception, SystemExit):  # whatever is wrong with the message, it must be stored
        logger.exception("%s: no key for %s: its place is the key", handler.name, message.place)
    else:
        # All messages with a blank key would count as one.
        logger.error("%s: a blank key for %s: its place is the key", handler.name, message.place)
    return message.place


# SQL: the number of the advisory lock of a row's chain.
CHAIN_LOCK = "hashtextextended(m.handler || chr(10) || m.chain, 1768842872)"
_EARLIER = """EXISTS (
    SELECT FROM inbox_message AS e
    WHERE e.handler = m.handler AND e.chain = m.chain AND e.holds AND e.id < m.id
)"""
# Rows that are looked at for one whose chain nobody has.
_CANDIDATES = 100
# The empty text keeps the planner from reading all messages of a handler by another index.
_FREE = f"""
WITH due AS MATERIALIZED (
    SELECT id, handler, chain, topic, partition, "offset", state, attempts, last_error,
        {CHAIN_LOCK} AS lock
    FROM inbox_message AS m
    WHERE due_at <= now() AND handler || '' = ANY(%s) AND NOT {_EARLIER}
    ORDER BY due_at, id LIMIT {_CANDIDATES}
)
SELECT * FROM due WHERE pg_try_advisory_lock(lock) LIMIT 1
"""  # noqa: S608 - our own constants
# The next attempt is set before this one begins. It must survive our process, not the server.
_BEGIN = f"""
UPDATE inbox_message AS m SET
    state = 'processing',
    attempts = attempts + 1,
    due_at = clock_timestamp() + %(pause)s * interval '1 second'
FROM (SELECT set_config('synchronous_commit', 'off', true)) AS fast
WHERE id = %(id)s AND attempts = %(attempts)s AND due_at <= now() AND NOT {_EARLIER}
RETURNING key, value, headers::text, sent_at
"""  # noqa: S608 - our own constants
_NEXT = """
UPDATE inbox_message SET due_at = timestamptz 'epoch' WHERE state = 'new' AND due_at IS NULL
    AND id = (
        SELECT id FROM inbox_message
        WHERE handler = %(handler)s AND chain = %(chain)s AND holds AND id > %(id)s
        ORDER BY id LIMIT 1
    )
"""
_DONE = f"""
WITH gone AS (
    DELETE FROM inbox_message WHERE id = %(id)s AND state = %(state)s AND attempts = %(attempts)s
    RETURNING handler, identity, clock_timestamp() AS at
), next AS ({_NEXT})
INSERT INTO inbox_done (handler, identity, done_at, slot)
SELECT handler, identity, at, mod(floor(extract(epoch FROM at) / 86400)::bigint, {SLOTS}) FROM gone
"""  # noqa: S608 - our own constants
_FAILED = """
UPDATE inbox_message SET state = 'failed', last_error = %(error)s,
    due_at = clock_timestamp() + %(pause)s * interval '1 second'
WHERE id = %(id)s AND state = 'processing' AND attempts = %(attempts)s
"""
_DEAD = """
UPDATE inbox_message SET state = 'dead', due_at = NULL, last_error = %(error)s, holds = %(holds)s
WHERE id = %(id)s AND state <> 'dead' AND attempts = %(attempts)s
"""
_LIMITS = """
SELECT set_config('statement_timeout', %(limit)s, false),
    set_config('idle_in_transaction_session_timeout', %(limit)s, false)
"""
_UNCOUNTED = """
UPDATE inbox_message SET state = CASE WHEN attempts > 1 THEN 'failed' ELSE 'new' END,
    attempts = attempts - 1, due_at = timestamptz 'epoch'
WHERE id = %(id)s AND state = 'processing' AND attempts = %(attempts)s
"""
# Locks of these only: PostgreSQL has place for some thousands.
_BLOCKED = f"""
WITH blocked AS MATERIALIZED (
    SELECT id, {CHAIN_LOCK} AS lock FROM inbox_message AS m
    WHERE due_at IS NOT NULL AND state = 'new' AND {_EARLIER} LIMIT 1000
)
SELECT id FROM blocked WHERE pg_try_advisory_xact_lock(lock)
"""  # noqa: S608 - our own constants
_PARK = f"""
UPDATE inbox_message AS m SET due_at = NULL
WHERE id = ANY(%s) AND state = 'new' AND {_EARLIER}
"""  # noqa: S608 - our own constants
# After the clock went back, no retry is further away than the longest pause.
_NEARER = """
UPDATE inbox_message SET due_at = clock_timestamp() + %(most)s * interval '1 second'
WHERE due_at > clock_timestamp() + %(most)s * interval '2 seconds'
"""


@dataclass(frozen=True, slots=True)
class Turn:
    """A message whose turn it is. place: topic, partition and offset. lock: of its chain, which
    this session holds. crashed: the attempt before ended without a result."""

    id: int
    handler: str
    chain: str
    place: tuple[str, int, int]
    attempts: int
    crashed: bool
    last_error: str
    lock: int

    @property
    def given(self) -> Mapping[str, Any]:
        """What the statements ask for."""
        return {
            "id": self.id,
            "handler": self.handler,
            "chain": self.chain,
            "attempts": self.attempts,
        }


def take(handlers: Collection[str], alias: str) -> Turn | None:
    """A message that is due, the longest waiting first, with the lock of its chain. None: there is
    none, or others have them all."""
    with connections[alias].cursor() as cursor:
        cursor.execute(_FREE, [list(handlers)])
        row = cursor.fetchone()
    if row is None:
        return None
    id, handler, chain, topic, partition, offset, state, attempts, error, lock = row
    place = (topic, partition, offset)
    return Turn(id, handler, chain, place, attempts, state == "processing", error, lock)


def begin(turn: Turn, pause: float, alias: str) -> tuple[Turn, Message] | None:
    """Write that an attempt begins, and when the next one may if nothing is written any more, in
    `pause` seconds. Returns the turn with this attempt counted, and the message; None: it is not
    its turn any more, because another consumer had it before we had the lock."""
    with connections[alias].cursor() as cursor:
        cursor.execute(_BEGIN, {**turn.given, "pause": pause})
        row = cursor.fetchone()
    if row is None:
        return None
    key, value, headers, sent_at = row
    begun = replace(turn, attempts=turn.attempts + 1)
    message = Message(
        *turn.place,
        None if key is None else bytes(key),
        None if value is None else bytes(value),
        headers_from(json.loads(headers)),
        sent_at,
        begun.attempts,
    )
    return begun, message


def leave(lock: int, alias: str) -> None:
    """Free a chain."""
    _execute("SELECT pg_advisory_unlock(%s)", [lock], alias)


def limit(seconds: float, alias: str) -> None:
    """Have PostgreSQL end transactions of this session if a statement, or a pause between two,
    takes longer: also if our process is frozen."""
    _execute(_LIMITS, {"limit": f"{int(seconds * 1000)}ms"}, alias)


def done(turn: Turn, alias: str) -> bool:
    """Write, in the transaction of the effect, that the message is processed; the next of its chain
    is due. False: it is not ours any more, and the effect must not stay."""
    return _execute(_DONE, {**turn.given, "state": "processing"}, alias) == 1


# The chain is nobody else's meanwhile.
_CHOSEN = f"""
SELECT id, handler, chain, attempts, state, pg_try_advisory_xact_lock({CHAIN_LOCK})
FROM inbox_message AS m WHERE id = ANY(%s) AND state IN ('dead', 'failed') ORDER BY id
"""  # noqa: S608 - our own constants
_RETRY = """
UPDATE inbox_message SET state = 'failed', attempts = 0, holds = true, due_at = timestamptz 'epoch'
WHERE id = %(id)s AND state = %(state)s AND attempts = %(attempts)s
"""


def retry(ids: Collection[int], alias: str) -> list[int]:
    """Have dead letters and failed messages tried again at once; returns those."""
    return _on_chosen(_RETRY, ids, alias)


def discard(ids: Collection[int], alias: str) -> list[int]:
    """Give up dead letters and failed messages: they count as processed, and the later messages of
    their keys go on. Returns those that were given up."""
    return _on_chosen(_DONE, ids, alias)


def _on_chosen(statement: str, ids: Collection[int], alias: str) -> list[int]:
    names = ("id", "handler", "chain", "attempts", "state", "free")
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        cursor.execute(_CHOSEN, [list(ids)])
        chosen = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        return [
            each["id"] for each in chosen if each["free"] and _execute(statement, each, alias) == 1
        ]


def failed(turn: Turn, error: str, pause: float, alias: str) -> None:
    """The attempt failed; the next one is after `pause` seconds."""
    _execute(_FAILED, {**turn.given, "error": error, "pause": pause}, alias)


def dead(turn: Turn, error: str, *, holds: bool, alias: str) -> bool:
    """There is no other attempt. holds: the later messages of the chain wait. False: another
    consumer had the message before we had the lock, or it is processed."""
    with transaction.atomic(using=alias, durable=True):
        written = _execute(_DEAD, {**turn.given, "error": error, "holds": holds}, alias) == 1
        if written and not holds:
            _execute(_NEXT, turn.given, alias)
    return written


def uncounted(turn: Turn, alias: str) -> None:
    """The attempt was no attempt: the database was away."""
    _execute(_UNCOUNTED, turn.given, alias)


def drop(alias: str) -> None:
    """End the connection, and forget what Django thinks of it."""
    connection = connections[alias].connection
    if connection is not None:
        connection.close()
    del connections[alias]


def tidy(most: float, alias: str) -> None:
    """Take messages that wait off the index of due ones; no retry after `most` seconds."""
    with transaction.atomic(using=alias, durable=True), connections[alias].cursor() as cursor:
        # The session may have the limit of a handler.
        cursor.execute(_PLAN)
        cursor.execute(_NEARER, {"most": most})
        cursor.execute(_BLOCKED)
        blocked = [id for (id,) in cursor.fetchall()]
        if blocked:
            # Asked again with the locks: what held them may be processed since.
            cursor.execute(_PARK, [blocked])


def _execute(statement: str, given: Any, alias: str) -> int:
    with connections[alias].cursor() as cursor:
        cursor.execute(statement, given)
        return int(cursor.rowcount)


# After the clock went back, the table of an old day can be that of a day to come. One row tells.
_NEWER = """
SELECT EXISTS (
    SELECT FROM (SELECT done_at FROM {{table}} LIMIT 1) AS one
    WHERE done_at > clock_timestamp() - interval '{keep_days} days'
)
"""


def clean(keep_days: int, alias: str) -> list[str]:
    """Truncate the tables of identities that are older than keep_days; their names."""
    with connect(alias) as connection:
        return days.clean(connection, "inbox_done", keep_days, _NEWER.format(keep_days=keep_days))
