"""Puts what was read from Kafka into the table, each message once for each of its handlers."""

from __future__ import annotations

import json
import logging
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db import connections, transaction

from outbox.inbox.message import Headers, Message, name_of
from outbox.inbox.registry import Handler

logger = logging.getLogger(__name__)

# Consumers store one after the other. So what one has stored is seen by the next, and ids grow in
# the order of commits.
_LOCK = 0x696E626F78
# An anti join by the indexes, whatever the planner thinks of tables without statistics. A consumer
# that is frozen here holds the others up no longer than this.
_PLAN = """
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
        return name_of(handler.key(message))
    except (Exception, SystemExit):  # whatever is wrong with the message, it must be stored
        logger.exception("%s: no key for %s: its place is the key", handler.name, message.place)
        return message.place
