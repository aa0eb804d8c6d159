"""Messages that arrived and were not stored, in the form in which the history app reads them.

The table belongs to ingest; history.store.quarantine_queries queries it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple


class VersionRange(NamedTuple):
    """A range of version numbers of a document."""

    id: str
    lowest: int
    highest: int


class MessagePosition(NamedTuple):
    """Where a message is in Kafka."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class QuarantinedMessage:
    """A message that arrived and could not be stored."""

    entity: str  # empty if the message does not say it
    id: str  # empty if the message does not say it
    version: int | None  # None if the message does not say it
    reason: str  # a member of ingest's Reason
    detail: str
    status: str  # a status of ingest's model of the table
    came_at: datetime
    settled_at: datetime | None  # when it was resolved or discarded
    outcome: str  # what a resolved message became, or why it was discarded
    application: str  # the application that a message of a child names, or empty
    made_at: datetime | None  # updatedAt of the version; None if it cannot be read
    position: MessagePosition


@dataclass(frozen=True, slots=True)
class OpenMessages:
    """The messages in quarantine that are about some documents and that the viewer may know of."""

    messages: Sequence[QuarantinedMessage] = ()  # newest first, at most MAX_MESSAGES
    has_more: bool = False  # whether there are more such messages than in `messages`
    nameless: int = 0  # how many messages of the kinds do not name a document; at most MAX_MESSAGES
    # the applications of each child, by the kind and id of the child
    owners: Mapping[tuple[str, str], Collection[str]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """The number of `messages`. There are more if `has_more` is true."""
        return len(self.messages)

    def list_about(self, kind: str, id: str) -> list[QuarantinedMessage]:
        """Return the messages about one document."""
        return [message for message in self.messages if (message.entity, message.id) == (kind, id)]

    def list_of_application(self, kind: str, id: str) -> list[QuarantinedMessage]:
        """Return the messages about an application, given by its kind and id, or its children."""
        return [
            message
            for message in self.messages
            if (message.entity, message.id) == (kind, id)
            or message.application == id
            or id in self.owners.get((message.entity, message.id), ())
        ]


NO_OPEN_MESSAGES = OpenMessages()
