"""The queue of messages in the database: stores them, finds the next one, and writes results."""

import json
import logging
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db import connections, transaction

from outbox.database import day_tables
from outbox.database.day_tables import TABLE_COUNT
from outbox.database.sessions import connect
from outbox.inbox.message import Headers, Message, MessageHandler, format_name

logger = logging.getLogger(__name__)

# The advisory lock under which consumers store one after the other, so that ids grow in the order
# of commits.
_STORE_LOCK = 0x696E626F78
# With read committed, statements after the lock see what was committed before the lock. The planner
# settings make the anti join use the indexes. The timeout limits for how long a frozen consumer
# stops the others.
_STORE_SETTINGS = """
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off;
SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = '10s'
"""
# The first message of a chain is due at once, each later one after the previous one is processed.
_DUE_AT_ONCE = "timestamptz 'epoch'"
_STORE = f"""
WITH incoming AS (
    SELECT DISTINCT ON (handler, identity) * FROM unnest(%s::text[], %s::text[], %s::text[],
        %s::text[], %s::int[], %s::bigint[], %s::bytea[], %s::bytea[], %s::text[],
        %s::timestamptz[])
        WITH ORDINALITY AS m (handler, identity, chain, topic, partition, "offset", key, value,
            headers, sent_at, place)
    ORDER BY handler, identity, place
), new_messages AS (
    SELECT * FROM incoming WHERE NOT EXISTS (
        SELECT FROM inbox_done AS d
        WHERE d.handler = incoming.handler AND d.identity = incoming.identity
    ) AND NOT EXISTS (
        SELECT FROM inbox_message AS w
        WHERE w.handler = incoming.handler AND w.identity = incoming.identity
    )
)
INSERT INTO inbox_message (handler, identity, chain, topic, partition, "offset", key, value,
    headers, sent_at, received_at, state, due_at)
SELECT handler, identity, chain, topic, partition, "offset", key, value, headers::jsonb, sent_at,
    clock_timestamp(), 'new', CASE WHEN row_number() OVER (
        PARTITION BY handler, chain ORDER BY place) = 1 THEN {_DUE_AT_ONCE} END
FROM new_messages ORDER BY place
RETURNING handler
"""  # noqa: S608 - our own constants


def store_messages(
    messages: Sequence[Message], handlers: Mapping[str, MessageHandler], alias: str
) -> Counter[tuple[str, str]]:
    """Store messages in their order, with one row for each handler of the topic.

    Returns:
        The number of messages, by handler and by `stored` (they are new) or `repeated` (they were
        stored or processed before).
    """
    rows = [
        _make_row(handler, message)
        for message in messages
        for handler in _select_handlers(message, handlers)
    ]
    counts: Counter[tuple[str, str]] = Counter()
    if not rows:
        return counts
    counts.update((row[0], "repeated") for row in rows)
    with transaction.atomic(using=alias, durable=True), connections[alias].cursor() as cursor:
        cursor.execute(_STORE_SETTINGS)
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_STORE_LOCK])
        cursor.execute(_STORE, [list(column) for column in zip(*rows, strict=True)])
        stored = Counter(handler for (handler,) in cursor.fetchall())
    for handler, count in stored.items():
        counts[handler, "stored"] = count
        counts[handler, "repeated"] -= count
    return +counts


def decode_headers(encoded: Iterable[Sequence[str | None]]) -> Headers:
    """Decode the headers of a message from the JSON in the column inbox_message.headers."""
    return tuple(
        (name or "", None if value is None else b64decode(value)) for name, value in encoded
    )


def _select_handlers(
    message: Message, handlers: Mapping[str, MessageHandler]
) -> Iterable[MessageHandler]:
    return (handler for handler in handlers.values() if message.topic in handler.topics)


def _make_row(handler: MessageHandler, message: Message) -> tuple[Any, ...]:
    headers = [
        (make_storable(name), None if value is None else b64encode(value).decode())
        for name, value in message.headers
    ]
    return (
        handler.name,
        _find_identity(handler, message),
        message.chain,
        message.topic,
        message.partition,
        message.offset,
        message.key,
        message.value,
        json.dumps(headers),
        message.sent_at,
    )


def make_storable(text: str) -> str:
    """Return the text without NUL and lone surrogates, which PostgreSQL refuses."""
    return text.encode("utf-8", "replace").decode().replace("\0", "?")


def _find_identity(handler: MessageHandler, message: Message) -> str:
    if handler.key is None:
        return message.identity
    try:
        key = handler.key(message)
        if key.strip():
            return format_name(key)
    except (Exception, SystemExit):  # the message must be stored even if the key function fails
        logger.exception(
            "%s: the key function failed for %s; topic, partition and offset are used as the key",
            handler.name,
            message.place,
        )
    else:
        # All messages with a blank key would count as the same message.
        logger.error(
            "%s: the key function returned a blank text for %s; topic, partition and offset are"
            " used as the key",
            handler.name,
            message.place,
        )
    return message.place


# SQL for the advisory lock of a row's chain.
CHAIN_LOCK = "hashtextextended(m.handler || chr(10) || m.chain, 1768842872)"
_HAS_EARLIER = """EXISTS (
    SELECT FROM inbox_message AS e
    WHERE e.handler = m.handler AND e.chain = m.chain AND e.holds AND e.id < m.id
)"""
# How many due messages are tried to find one whose chain is not locked.
_CANDIDATES = 100
# Appending the empty text keeps the planner from using an index by which it would read all messages
# of a handler.
_TAKE = f"""
WITH due AS MATERIALIZED (
    SELECT id, handler, chain, topic, partition, "offset", state, attempts, last_error,
        {CHAIN_LOCK} AS lock
    FROM inbox_message AS m
    WHERE due_at <= now() AND handler || '' = ANY(%s) AND NOT {_HAS_EARLIER}
    ORDER BY due_at, id LIMIT {_CANDIDATES}
)
SELECT * FROM due WHERE pg_try_advisory_lock(lock) LIMIT 1
"""  # noqa: S608 - our own constants
# The time of the next attempt is written before this attempt begins, in case this process dies. It
# need not survive a crash of the server, so the commit is asynchronous.
_BEGIN = f"""
UPDATE inbox_message AS m SET
    state = 'processing',
    attempts = attempts + 1,
    due_at = clock_timestamp() + %(pause)s * interval '1 second'
FROM (SELECT set_config('synchronous_commit', 'off', true)) AS fast
WHERE id = %(id)s AND attempts = %(attempts)s AND due_at <= now() AND NOT {_HAS_EARLIER}
RETURNING key, value, headers::text, sent_at
"""  # noqa: S608 - our own constants
_MAKE_NEXT_DUE = """
UPDATE inbox_message SET due_at = timestamptz 'epoch' WHERE state = 'new' AND due_at IS NULL
    AND id = (
        SELECT id FROM inbox_message
        WHERE handler = %(handler)s AND chain = %(chain)s AND holds AND id > %(id)s
        ORDER BY id LIMIT 1
    )
"""
_DONE = f"""
WITH deleted AS (
    DELETE FROM inbox_message WHERE id = %(id)s AND state = %(state)s AND attempts = %(attempts)s
    RETURNING handler, identity, clock_timestamp() AS at
), next AS ({_MAKE_NEXT_DUE})
INSERT INTO inbox_done (handler, identity, done_at, slot)
SELECT handler, identity, at, mod(floor(extract(epoch FROM at) / 86400)::bigint, {TABLE_COUNT})
FROM deleted
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
_WITHDRAW = """
UPDATE inbox_message SET state = CASE WHEN attempts > 1 THEN 'failed' ELSE 'new' END,
    attempts = attempts - 1, due_at = timestamptz 'epoch'
WHERE id = %(id)s AND state = 'processing' AND attempts = %(attempts)s
"""
# At most 1000 chains are locked, because PostgreSQL has room for only a few thousand locks.
_BLOCKED = f"""
WITH blocked AS MATERIALIZED (
    SELECT id, {CHAIN_LOCK} AS lock FROM inbox_message AS m
    WHERE due_at IS NOT NULL AND state = 'new' AND {_HAS_EARLIER} LIMIT 1000
)
SELECT id FROM blocked WHERE pg_try_advisory_xact_lock(lock)
"""  # noqa: S608 - our own constants
_PARK = f"""
UPDATE inbox_message AS m SET due_at = NULL
WHERE id = ANY(%s) AND state = 'new' AND {_HAS_EARLIER}
"""  # noqa: S608 - our own constants
# If the clock was set back, retries may be further away than the longest pause. This limits them.
_LIMIT_NEXT_ATTEMPTS = """
UPDATE inbox_message SET due_at = clock_timestamp() + %(most)s * interval '1 second'
WHERE due_at > clock_timestamp() + %(most)s * interval '2 seconds'
"""


@dataclass(frozen=True, slots=True)
class LockedInboxMessage:
    """A due message that only this session processes, because it holds an advisory lock.

    The lock is on the handler, the topic and the Kafka key of the message.

    Attributes:
        id: The primary key of the message.
        handler: The name of the handler.
        chain: The topic and the key of the message.
        place: The topic, partition and offset of the message.
        attempts: How many attempts have begun.
        crashed: Whether the previous attempt ended without a result, such as by a kill.
        last_error: The error of the previous attempt, or empty.
        lock: The key of the advisory lock.
    """

    id: int
    handler: str
    chain: str
    place: tuple[str, int, int]
    attempts: int
    crashed: bool
    last_error: str
    lock: int

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The parameters for the statements about this message."""
        return {
            "id": self.id,
            "handler": self.handler,
            "chain": self.chain,
            "attempts": self.attempts,
        }


def lock_next_message(handlers: Collection[str], alias: str) -> LockedInboxMessage | None:
    """Return the due message that has waited longest, and lock its Kafka key for this session.

    Messages with keys that other sessions have locked are passed over.

    Returns:
        The message. None if no message is due, or if other sessions have locked the keys of all due
        messages.
    """
    with connections[alias].cursor() as cursor:
        cursor.execute(_TAKE, [list(handlers)])
        row = cursor.fetchone()
    if row is None:
        return None
    id, handler, chain, topic, partition, offset, state, attempts, error, lock = row
    place = (topic, partition, offset)
    return LockedInboxMessage(
        id, handler, chain, place, attempts, state == "processing", error, lock
    )


def begin_attempt(
    locked_message: LockedInboxMessage, pause: float, alias: str
) -> tuple[LockedInboxMessage, Message] | None:
    """Record that an attempt to process a locked message begins.

    Args:
        pause: Seconds until the next attempt, if this attempt ends without a result.

    Returns:
        `locked_message` with `attempts` raised by one, and the message for the handler. None if
        a different consumer tried the message just before `lock_next_message` got the lock.
    """
    with connections[alias].cursor() as cursor:
        cursor.execute(_BEGIN, {**locked_message.parameters, "pause": pause})
        row = cursor.fetchone()
    if row is None:
        return None
    key, value, headers, sent_at = row
    counted_message = replace(locked_message, attempts=locked_message.attempts + 1)
    message = Message(
        *locked_message.place,
        None if key is None else bytes(key),
        None if value is None else bytes(value),
        decode_headers(json.loads(headers)),
        sent_at,
        counted_message.attempts,
    )
    return counted_message, message


def unlock_chain(lock: int, alias: str) -> None:
    """Release an advisory lock that `lock_next_message` took on a handler, topic and Kafka key."""
    _execute("SELECT pg_advisory_unlock(%s)", [lock], alias)


def set_time_limit(seconds: float, alias: str) -> None:
    """Limit how long a statement, or a pause between two statements in a transaction, may take.

    PostgreSQL enforces the limit even if this process is frozen.
    """
    _execute(_LIMITS, {"limit": f"{int(seconds * 1000)}ms"}, alias)


def mark_processed(locked_message: LockedInboxMessage, alias: str) -> bool:
    """Mark the message as processed, in the transaction in which the handler made its changes.

    The next message with the same topic and key becomes due.

    Returns:
        False if a different consumer has taken over the message. The caller must then roll back.
    """
    return _execute(_DONE, {**locked_message.parameters, "state": "processing"}, alias) == 1


# Locks the chains of the chosen messages, so that no consumer processes them meanwhile.
_LOCK_CHOSEN = f"""
SELECT id, handler, chain, attempts, state, pg_try_advisory_xact_lock({CHAIN_LOCK})
FROM inbox_message AS m WHERE id = ANY(%s) AND state IN ('dead', 'failed') ORDER BY id
"""  # noqa: S608 - our own constants
_RETRY = """
UPDATE inbox_message SET state = 'failed', attempts = 0, holds = true, due_at = timestamptz 'epoch'
WHERE id = %(id)s AND state = %(state)s AND attempts = %(attempts)s
"""


def retry_messages(ids: Collection[int], alias: str) -> list[int]:
    """Make dead letters and failed messages due at once, and return the ids of these messages.

    A message is left out if its state is different, or if a consumer processes a message with the
    same topic and key.
    """
    return _change_unlocked_messages(_RETRY, ids, alias)


def discard_messages(ids: Collection[int], alias: str) -> list[int]:
    """Discard dead letters and failed messages, and return the ids of these messages.

    Discarded messages count as processed, so later messages with the same keys can be processed.
    A message is left out if its state is different, or if a consumer processes a message with the
    same topic and key.
    """
    return _change_unlocked_messages(_DONE, ids, alias)


def _change_unlocked_messages(statement: str, ids: Collection[int], alias: str) -> list[int]:
    names = ("id", "handler", "chain", "attempts", "state", "is_locked_here")
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        cursor.execute(_LOCK_CHOSEN, [list(ids)])
        messages = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        return [
            message["id"]
            for message in messages
            if message["is_locked_here"] and _execute(statement, message, alias) == 1
        ]


def mark_failed(locked_message: LockedInboxMessage, error: str, pause: float, alias: str) -> None:
    """Record that the attempt failed. The next attempt follows after `pause` seconds."""
    _execute(_FAILED, {**locked_message.parameters, "error": error, "pause": pause}, alias)


def mark_dead(locked_message: LockedInboxMessage, error: str, *, holds: bool, alias: str) -> bool:
    """Make the message a dead letter.

    Args:
        holds: Whether later messages with the same topic and key wait until a person retries or
            discards this message.

    Returns:
        False if the message is already dead or processed, or if a different consumer has begun an
        attempt.
    """
    with transaction.atomic(using=alias, durable=True):
        is_written = (
            _execute(_DEAD, {**locked_message.parameters, "error": error, "holds": holds}, alias)
            == 1
        )
        if is_written and not holds:
            _execute(_MAKE_NEXT_DUE, locked_message.parameters, alias)
    return is_written


def withdraw_attempt(locked_message: LockedInboxMessage, alias: str) -> None:
    """Reduce the attempts of a message by one, because a database outage ended the last attempt."""
    _execute(_WITHDRAW, locked_message.parameters, alias)


def drop_connection(alias: str) -> None:
    """Close the connection, so that Django opens a new one."""
    connection = connections[alias].connection
    if connection is not None:
        connection.close()
    del connections[alias]


def repair_due_times(longest_pause: float, alias: str) -> None:
    """Correct the times from which messages are due.

    If a new message must wait for an earlier message with the same topic and key, its due time is
    removed, so that the search for due messages skips it. The message becomes due when the earlier
    message is processed.

    If the clock was set back, a retry can be due too late. A retry that is due in more than twice
    `longest_pause` seconds becomes due in `longest_pause` seconds.
    """
    with transaction.atomic(using=alias, durable=True), connections[alias].cursor() as cursor:
        # The session may still have the time limit of a handler.
        cursor.execute(_STORE_SETTINGS)
        cursor.execute(_LIMIT_NEXT_ATTEMPTS, {"most": longest_pause})
        cursor.execute(_BLOCKED)
        blocked = [id for (id,) in cursor.fetchall()]
        if blocked:
            # Check again under the locks: the messages for which they wait may be processed by now.
            cursor.execute(_PARK, [blocked])


def _execute(statement: str, parameters: Any, alias: str) -> int:
    with connections[alias].cursor() as cursor:
        cursor.execute(statement, parameters)
        return int(cursor.rowcount)


# If the clock was set back, the table of an old day can belong to a coming day. A single row of the
# table shows to which day it belongs.
_HAS_RECENT = """
SELECT EXISTS (
    SELECT FROM (SELECT done_at FROM {{table}} LIMIT 1) AS one
    WHERE done_at > clock_timestamp() - interval '{keep_days} days'
)
"""


def truncate_expired_identities(keep_days: int, alias: str) -> list[str]:
    """Truncate the expired tables of identities. Return the names of the truncated tables."""
    with connect(alias) as connection:
        return day_tables.truncate_expired_tables(
            connection, "inbox_done", keep_days, _HAS_RECENT.format(keep_days=keep_days)
        )
