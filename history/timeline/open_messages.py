"""Finds messages that are or were in quarantine, by the document or version in the message.

The functions return only messages that the viewer may know of. `fetch_messages_for` and
`select_open_messages` return only open messages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from history.kinds.entities import EntityKind, get_root
from history.store import quarantine_queries
from history.store.database import prepared
from history.store.quarantined_messages import (
    MessagePosition,
    OpenMessages,
    QuarantinedMessage,
    VersionRange,
)
from history.store.versions import EntityRef
from history.timeline.reader import HistoryReader


@dataclass(frozen=True, slots=True)
class OpenMessagesQuestion:
    """A query for the open messages about certain documents.

    The caller runs `statement` and passes the rows to `select_open_messages`. The round trip can
    have other statements too.
    """

    # messages of these kinds are counted if they do not name a document
    kinds: Sequence[EntityKind]
    documents: Collection[EntityRef]
    applications: Collection[str] = ()  # messages about their children are also returned

    @classmethod
    def about(
        cls, kinds: Sequence[EntityKind], entity: EntityKind | None, id: str
    ) -> OpenMessagesQuestion:
        """Make the query about one document, or about an application with its children.

        Args:
            entity: The kind of the document. None for an application.
            id: The id of the document or application.
        """
        if entity is None:
            return cls(kinds, [EntityRef(get_root(), id)], [id])
        return cls(kinds, [EntityRef(entity, id)])

    @property
    def statement(self) -> prepared.Statement:
        return quarantine_queries.make_open_messages_query(
            self.kinds, self.documents, self.applications
        )


def fetch_messages_for(reader: HistoryReader, question: OpenMessagesQuestion) -> OpenMessages:
    """Run the statement of `question`. Return the open messages that the viewer may know of."""
    return select_open_messages(reader, question, prepared.fetch_rows(*question.statement))


def select_open_messages(
    reader: HistoryReader, question: OpenMessagesQuestion, rows: prepared.FetchedRows
) -> OpenMessages:
    """Return the open messages that `question` asks for and that the viewer may know of.

    Run `question.statement` before reading versions, and call this function after it. A message
    that is stored in between is then shown twice: in quarantine and as a version. In the other
    order it would not be shown at all.

    Some messages about a child do not name its application. If there may be such messages, two more
    queries find them: one for the children in the store, one for the messages about these children.

    Args:
        rows: The rows of `question.statement`.
    """
    decoded = quarantine_queries.decode_open_messages(rows)
    messages = {message.position: message for message in decoded.messages}
    children: Mapping[EntityRef, set[str]] = {}
    if decoded.may_have_nameless_children:
        children = reader.store_lists.fetch_children(question.applications)
        if children:
            child_rows = prepared.fetch_rows(*OpenMessagesQuestion((), children).statement)
            child_messages = quarantine_queries.decode_open_messages(child_rows).messages
            messages |= {message.position: message for message in child_messages}
    visible_messages = sorted(
        reader.policy.select_tellable(messages.values()), key=_get_arrival, reverse=True
    )
    max_messages = quarantine_queries.MAX_MESSAGES
    owners = {(entity.name, id): applications for (entity, id), applications in children.items()}
    return OpenMessages(
        visible_messages[:max_messages],
        len(visible_messages) > max_messages,
        decoded.nameless,
        owners,
    )


def find_quarantined(
    reader: HistoryReader, entity: EntityKind, ranges: Iterable[VersionRange]
) -> Mapping[str, Mapping[int, QuarantinedMessage]]:
    """Return the messages that brought versions in `ranges` but could not be stored.

    Returns:
        The messages that the viewer may know of, by document id, then by version number.
    """
    messages = quarantine_queries.find_by_versions(entity, ranges)
    visible_messages = reader.policy.select_tellable(
        [message for by_number in messages.values() for message in by_number.values()]
    )
    positions = {message.position for message in visible_messages}
    return {
        id: {
            number: message
            for number, message in by_number.items()
            if message.position in positions
        }
        for id, by_number in messages.items()
    }


def find_resolved(
    reader: HistoryReader, entity: EntityKind, id: str, version: int
) -> QuarantinedMessage | None:
    """Return the message from quarantine that was stored as this version.

    Returns None if there is no such message, or if the viewer may not know of it.
    """
    message = quarantine_queries.find_resolved(entity, id, version)
    return message if message and reader.policy.select_tellable([message]) else None


def _get_arrival(message: QuarantinedMessage) -> tuple[datetime, MessagePosition]:
    return message.came_at, message.position
