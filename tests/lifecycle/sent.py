"""The messages of the lifecycle test, and the row that each must become."""

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple

from history.kinds.entities import BY_NAME, EntityKind

ROOT, CHILD = BY_NAME["product-instance"], BY_NAME["participant-role"]
ENTITIES = (ROOT, CHILD)
TOPICS = tuple(topic for entity in ENTITIES for topic in entity.topics)
BY_TABLE = {entity.table: entity for entity in ENTITIES}

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The first moment of a day, two later ones, and the last one.
MOMENTS = (
    timedelta(0),
    timedelta(hours=7),
    timedelta(hours=19),
    timedelta(days=1) - timedelta.resolution,
)


class Row(NamedTuple):
    """One stored version."""

    table: str
    id: str
    version: int
    updated_at: int  # microseconds since the epoch
    client: str
    author: str | None
    type: int
    application: str | None
    data: str  # JSON with sorted keys

    @property
    def key(self) -> tuple[str, str, int, int]:
        return self.table, self.id, self.updated_at, self.version

    @property
    def day(self) -> date:
        return (EPOCH + timedelta(microseconds=self.updated_at)).date()

    def __str__(self) -> str:
        return f"{self.table} {self.id} v{self.version} of {self.day}"


class MessageQuality(Enum):
    """Whether a message is good, and if not, who refuses it."""

    GOOD = "good"
    POISON = "poison"  # PostgreSQL refuses its version
    BROKEN = "broken"  # the decoder refuses it, because its last bytes are missing


class VersionDay(Enum):
    """The day of a version, relative to the window."""

    TODAY = "today"
    YESTERDAY = "yesterday"
    OLDEST = "the first day that is kept"
    BEFORE = "the day before the first day that is kept"
    ARCHIVED = "the newest day in the archive"
    AHEAD = "the last day that is accepted"
    BEYOND = "the day after the last day that is accepted"


@dataclass(frozen=True)
class Draft:
    """A message that is not sent yet."""

    entity: int = 0
    twin: bool = False  # whether it goes to the migration topic
    id: int = 0
    version: int = 0
    day: VersionDay = VersionDay.TODAY
    moment: int = 1  # an index of MOMENTS
    content: int = 0  # goes into the snapshot, so two drafts can differ in one version
    kind: MessageQuality = MessageQuality.GOOD

    @property
    def topic(self) -> str:
        return ENTITIES[self.entity].topics[self.twin]


@dataclass(frozen=True)
class Sent:
    """A message in a topic."""

    topic: str
    offset: int
    value: bytes
    sent: datetime  # when it was sent
    table: str
    day: date  # the UTC day of its version
    row: Row | None  # the row that must be stored, or None if the message is bad
    readable: bool  # whether it can be decoded

    @property
    def place(self) -> tuple[str, int]:
        return self.topic, self.offset

    @property
    def timestamp(self) -> int:
        """When it was sent, in milliseconds since the epoch."""
        return int(self.sent.timestamp() * 1000)

    def __str__(self) -> str:
        return f"{self.topic}@{self.offset} of {self.day}"


def make_sent(draft: Draft, day: date, offset: int, now: datetime) -> Sent:
    """Make the message of a draft, at this offset of its topic."""
    entity = ENTITIES[draft.entity]
    moment = datetime.combine(day, time(), UTC) + MOMENTS[draft.moment]
    data: dict[str, Any] = {"content": draft.content, "exact": "@", "number": f"N{draft.id}"}
    if not entity.root:
        data["clientId"] = f"C{draft.id}"
    fields: dict[str, Any] = {
        "id": f"{'a' if entity.root else 'p'}{draft.id}",
        "version": draft.version,
        "type": min(draft.version, 1),
        "updatedAt": f"{moment:%Y-%m-%dT%H:%M:%S.%f}",
        "clientId": "top-crm",
        "author": None if draft.version == 1 else "m.ivanov",
        "data": data,
    }
    if not entity.root:
        fields["productInstanceId"] = f"a{draft.content}"
    number = "1e400000" if draft.kind is MessageQuality.POISON else "12345678901234567890.10"
    value = json.dumps(fields).replace('"@"', number).encode()
    if draft.kind is MessageQuality.BROKEN:
        value = value[:-2]
    row = _make_row(entity, fields, moment, number) if draft.kind is MessageQuality.GOOD else None
    readable = draft.kind is not MessageQuality.BROKEN
    return Sent(draft.topic, offset, value, now, entity.table, day, row, readable)


def _make_row(entity: EntityKind, fields: dict[str, Any], moment: datetime, number: str) -> Row:
    return Row(
        entity.table,
        fields["id"],
        fields["version"],
        to_microseconds(moment),
        fields["clientId"],
        fields["author"],
        fields["type"],
        fields.get("productInstanceId"),
        to_canonical(json.dumps(fields["data"]).replace('"@"', number)),
    )


def to_microseconds(moment: datetime) -> int:
    """Return microseconds since the epoch."""
    return (moment - EPOCH) // timedelta.resolution


def to_canonical(text: str) -> str:
    """Return JSON text with sorted keys and unchanged numbers."""
    return json.dumps(json.loads(text, parse_float=Decimal), sort_keys=True, default=str)
