"""Queries the table of the messages in quarantine, which belongs to ingest.

The functions here do not know the viewer. history.timeline.open_messages calls them for documents,
and leaves out the messages that the viewer may not know of. Pages and commands for operators call
them directly (docs/access.md).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

from django.db import connection

from history.common import deadline
from history.kinds.entities import CHILDREN, EntityKind
from history.store.database.prepared import Statement
from history.store.quarantined_messages import MessagePosition, QuarantinedMessage, VersionRange
from history.store.versions import EntityRef

# How many messages one query returns at most: a document may have a million bad messages.
MAX_MESSAGES = 1_000
# The largest number that fits into the bigint parameters of the query for versions. A request may
# name a larger one.
LARGEST_VERSION = 2**63 - 1

_COLUMNS = """
    q.entity, q.entity_id, q.version, q.reason, q.detail, q.status, q.first_seen, q.settled_at,
    q.outcome, q.application, q.made_at, q.topic, q.partition, q."offset"
"""
# Returns one message for each version in some ranges: of several messages, the latest one that can
# still be retried, or else the latest. A message that came out of quarantine too late (expired)
# explains a missing version too. The inner query chooses only ids: sorting 500,000 whole rows takes
# 20 s.
_MESSAGES_ABOUT_VERSIONS = f"""
    SELECT {_COLUMNS} FROM (
        SELECT coalesce(
            max(q.id) FILTER (WHERE q.status NOT IN ('resolved', 'discarded')), max(q.id)
        ) AS id
        FROM unnest(%s::varchar[], %s::bigint[], %s::bigint[]) AS requested(id, low, high)
        JOIN ingest_quarantine q
            ON q.entity = %s AND q.entity_id = requested.id AND q.entity_id <> ''
            AND q.version >= requested.low AND q.version <= requested.high
        WHERE q.status <> 'resolved' OR q.outcome = 'expired'
        GROUP BY q.entity_id, q.version ORDER BY q.entity_id, q.version LIMIT {MAX_MESSAGES}
    ) AS chosen JOIN ingest_quarantine q USING (id)
    ORDER BY q.entity_id, q.version
"""  # noqa: S608 - constants
# Returns the messages about a document that are in quarantine or were discarded there.
_MESSAGES_ABOUT_DOCUMENT = f"""
    SELECT {_COLUMNS} FROM ingest_quarantine q
    WHERE q.entity = %s AND q.entity_id = %s AND q.entity_id <> '' AND q.status <> 'resolved'
    ORDER BY q.id DESC LIMIT {MAX_MESSAGES}
"""  # noqa: S608 - constants
# Returns the message at an offset.
_MESSAGE_AT_OFFSET = f"""
    SELECT {_COLUMNS} FROM ingest_quarantine q
    WHERE topic = %s AND topic_id = %s AND partition = %s AND "offset" = %s
"""  # noqa: S608 - constants
# Returns the message from quarantine that was stored as a version.
_MESSAGE_STORED_AS_VERSION = f"""
    SELECT {_COLUMNS} FROM ingest_quarantine q
    WHERE q.entity = %s AND q.entity_id = %s AND q.entity_id <> '' AND q.version = %s
        AND q.status = 'resolved' AND q.outcome IN ('stored', 'repeated')
    ORDER BY q.id LIMIT 1
"""  # noqa: S608 - constants

# Is true of an open message. Two indexes have the same condition.
_OPEN = "q.status IN ('new', 'retrying', 'failed')"
# Returns the open messages about some documents, and about children of some applications. Each row
# begins with two values about other open messages; without any message there is one row with only
# these values. `nameless` is the number of messages that do not name a document.
# `has_other_children` is whether there are messages about children that do not name one of the
# applications. Such a message may be about a child of one of them all the same: then it can be
# found only by the id of the child.
_OPEN_MESSAGES = f"""
    WITH chosen AS (
        SELECT message.id FROM unnest(%(kinds)s::text[], %(ids)s::text[]) AS document(kind, id)
        CROSS JOIN LATERAL (
            SELECT q.id FROM ingest_quarantine q
            WHERE q.entity = document.kind AND q.entity_id = document.id AND {_OPEN}
            ORDER BY q.version DESC LIMIT {MAX_MESSAGES + 1}
        ) AS message
        UNION
        SELECT message.id FROM unnest(%(applications)s::text[]) AS application(id)
        CROSS JOIN LATERAL (
            SELECT q.id FROM ingest_quarantine q
            WHERE q.application = application.id AND q.application <> '' AND q.entity_id <> ''
                AND {_OPEN}
            LIMIT {MAX_MESSAGES + 1}
        ) AS message
    ), sums AS (
        SELECT
            (SELECT count(*) FROM (
                SELECT FROM ingest_quarantine q
                WHERE q.entity = ANY(%(counted_kinds)s::text[]) AND q.entity_id = ''
                    AND {_OPEN} LIMIT {MAX_MESSAGES}
            ) AS message) AS nameless,
            (SELECT count(*) = {MAX_MESSAGES} OR coalesce(
                bool_or(NOT message.application = ANY(%(applications)s::text[])), false)
            FROM (
                SELECT q.application FROM ingest_quarantine q
                WHERE q.entity = ANY(%(children)s::text[]) AND q.entity_id <> '' AND {_OPEN}
                LIMIT {MAX_MESSAGES}
            ) AS message) AS has_other_children
    )
    SELECT sums.nameless, sums.has_other_children, {_COLUMNS}
    FROM sums LEFT JOIN (chosen JOIN ingest_quarantine q USING (id)) ON true
    ORDER BY q.first_seen DESC, q.id DESC LIMIT {MAX_MESSAGES + 1}
"""  # noqa: S608 - constants
# Returns how many open messages are about versions of some days.
_OPEN_MESSAGE_COUNT = f"""
    SELECT count(*) FROM ingest_quarantine q
    WHERE q.entity = %s AND {_OPEN} AND (%s::date IS NULL OR q.day >= %s)
        AND (%s::date IS NULL OR q.day < %s)
"""  # noqa: S608 - constants


class OpenMessageRows(NamedTuple):
    """The open messages about some documents, and a count of open messages without a document."""

    messages: list[QuarantinedMessage]  # the open messages about the documents and applications
    # whether children may have messages that do not name the application, see _OPEN_MESSAGES
    may_have_nameless_children: bool
    nameless: int  # how many messages of the kinds do not name a document


def make_open_messages_query(
    kinds: Iterable[EntityKind], documents: Collection[EntityRef], applications: Collection[str]
) -> Statement:
    """Make the query for the open messages about some documents and applications.

    The query returns the open messages themselves, and the number of open messages of `kinds` that
    do not name a document.

    Args:
        kinds: The messages of these kinds are counted.
        documents: The messages about these documents are returned.
        applications: The messages about children of these applications are returned, too.
    """
    values = {
        "counted_kinds": [entity.name for entity in kinds],
        "kinds": [entity.name for entity, _ in documents],
        "ids": [id for _, id in documents],
        "applications": list(applications),
        "children": [entity.name for entity in CHILDREN] if applications else [],
    }
    return _OPEN_MESSAGES, values


def decode_open_messages(rows: Sequence[tuple[Any, ...]]) -> OpenMessageRows:
    """Decode the rows that the query of make_open_messages_query returned."""
    nameless, has_other_children = rows[0][:2]
    messages = [_make_message(row[2:]) for row in rows if row[2] is not None]
    return OpenMessageRows(messages, has_other_children, nameless)


def count_open_messages(entity: EntityKind, since: date | None, until: date | None) -> int:
    """Return how many open messages are about versions of these days.

    Args:
        since: The first day of the versions. None: no limit.
        until: The day after the last day of the versions. None: no limit.
    """
    deadline.check()
    with connection.cursor() as cursor:
        cursor.execute(_OPEN_MESSAGE_COUNT, [entity.name, since, since, until, until])
        count: int = (cursor.fetchone() or (0,))[0]
        return count


def find_by_versions(
    entity: EntityKind, ranges: Iterable[VersionRange]
) -> Mapping[str, Mapping[int, QuarantinedMessage]]:
    """Return the messages that brought these versions but could not be stored.

    Such a message is in quarantine, or was discarded, or was retried when its version was already
    older than retention. Runs one query, or none if there are no ranges.

    Returns:
        The messages by id and version number, ascending; at most MAX_MESSAGES.
    """
    possible = [versions for versions in ranges if versions.lowest <= LARGEST_VERSION]
    columns = [list(column) for column in zip(*possible, strict=True)]
    messages: dict[str, dict[int, QuarantinedMessage]] = {}
    for message in _fetch(_MESSAGES_ABOUT_VERSIONS, [*columns, entity.name]) if columns else ():
        if message.version is not None:
            messages.setdefault(message.id, {})[message.version] = message
    return messages


def find_by_document(entity: EntityKind, id: str) -> list[QuarantinedMessage]:
    """Return the messages about a document that are in quarantine or were discarded there.

    The newest message comes first; there are at most MAX_MESSAGES. Messages that do not say which
    version they bring are included.
    """
    return _fetch(_MESSAGES_ABOUT_DOCUMENT, [entity.name, id])


def find_resolved(entity: EntityKind, id: str, version: int) -> QuarantinedMessage | None:
    """Return the message that was stored as this version after it was in quarantine, or None."""
    return next(iter(_fetch(_MESSAGE_STORED_AS_VERSION, [entity.name, id, version])), None)


def find_by_offset(
    topic: str, topic_id: str, partition: int, offset: int
) -> QuarantinedMessage | None:
    """Return the message at this offset, whatever its status.

    Returns:
        None if the message was never in quarantine.
    """
    return next(iter(_fetch(_MESSAGE_AT_OFFSET, [topic, topic_id, partition, offset])), None)


def _fetch(statement: str, values: list[Any]) -> list[QuarantinedMessage]:
    deadline.check()
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return [_make_message(row) for row in cursor.fetchall()]


def _make_message(row: tuple[Any, ...]) -> QuarantinedMessage:
    return QuarantinedMessage(*row[:-3], MessagePosition(*row[-3:]))  # type: ignore[call-arg] # all fields
