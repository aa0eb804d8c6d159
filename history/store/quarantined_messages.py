"""Messages that came and were not stored, as readers of the history know them.

The table belongs to ingest; history.store.quarantine_queries queries it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple


class VersionRange(NamedTuple):
    """Successive version numbers of a document."""

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
    """A message that came and was not stored."""

    entity: str  # empty if the message does not say it
    id: str  # empty if the message does not say it
    version: int | None  # None if the message does not say it
    reason: str  # a member of ingest's Reason
    detail: str
    status: str  # of ingest's model
    came_at: datetime
    settled_at: datetime | None  # when it was resolved or discarded
    outcome: str  # what a resolved message became, or why it was discarded
    application: str  # the one that a message of a child names, or empty
    made_at: datetime | None  # updatedAt of the version; None if it cannot be read
    position: MessagePosition


@dataclass(frozen=True, slots=True)
class OpenMessages:
    """The messages about documents that are in quarantine and that the viewer may know of.

    They are neither stored since nor discarded.
    """

    messages: Sequence[QuarantinedMessage] = ()  # those that came last first, at most MAX_MESSAGES
    has_more: bool = False  # whether there are more
    nameless: int = 0  # how many messages of the kinds name no document, at most MAX_MESSAGES
    # applications of each child, by kind and id
    owners: Mapping[tuple[str, str], Collection[str]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many messages there are; at least so many if `has_more`."""
        return len(self.messages)

    def list_about(self, kind: str, id: str) -> list[QuarantinedMessage]:
        """Return the messages about one document."""
        return [message for message in self.messages if (message.entity, message.id) == (kind, id)]

    def list_of_application(self, kind: str, id: str) -> list[QuarantinedMessage]:
        """Return the messages about an application or a child of it."""
        return [
            message
            for message in self.messages
            if (message.entity, message.id) == (kind, id)
            or message.application == id
            or id in self.owners.get((message.entity, message.id), ())
        ]


NO_OPEN_MESSAGES = OpenMessages()
