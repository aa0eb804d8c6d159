"""Messages that came and were not stored, as readers of the history know them. The table is
ingest's; history.quarantined asks it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, TypeAlias

# Entity, id and number as the table has them; the lowest and the highest version.
VersionRange: TypeAlias = tuple[str, int, int]


class MessagePlace(NamedTuple):
    """Where a message is in Kafka."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A message that came and was not stored. version: as far as it says; entity and id may be
    empty. reason: a member of ingest's Reason; status: of its model. settled_at: when it was
    resolved or discarded. outcome: what a resolved message became, or why it was discarded.
    application: the one that a message of a child names, or empty. made_at: updatedAt of the
    version, None if it cannot be read."""

    entity: str
    id: str
    version: int | None
    reason: str
    detail: str
    status: str
    came_at: datetime
    settled_at: datetime | None
    outcome: str
    application: str
    made_at: datetime | None
    place: MessagePlace


@dataclass(frozen=True, slots=True)
class OpenMessages:
    """The messages about documents that are in quarantine, neither stored since nor discarded, and
    of which the reader may know.

    messages: those that came last first, at most history.quarantined.MOST. cut: whether there are
    more. nameless: how many messages of the kinds that were asked about name no document; at most
    MOST too.
    """

    messages: Sequence[Quarantined] = ()
    cut: bool = False
    nameless: int = 0
    owners: Mapping[tuple[str, str], Collection[str]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Return how many messages there are; the least number if `cut`."""
        return len(self.messages)

    def about(self, kind: str, id: str) -> list[Quarantined]:
        """Return those about one document."""
        return [each for each in self.messages if (each.entity, each.id) == (kind, id)]

    def of_application(self, kind: str, id: str) -> list[Quarantined]:
        """Return those about an application or a child of it. kind: of applications."""
        return [
            each
            for each in self.messages
            if (each.entity, each.id) == (kind, id)
            or each.application == id
            or id in self.owners.get((each.entity, each.id), ())
        ]


NO_OPEN_MESSAGES = OpenMessages()
