"""Messages of a few entities, and the row that each must become."""

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
    """One stored version. updated_at: microseconds since the epoch; data: JSON with sorted keys."""

    table: str
    id: str
    version: int
    updated_at: int
    client: str
    author: str | None
    type: int
    application: str | None
    data: str

    @property
    def key(self) -> tuple[str, str, int, int]:
        return self.table, self.id, self.updated_at, self.version

    @property
    def day(self) -> date:
        return (EPOCH + timedelta(microseconds=self.updated_at)).date()

    def __str__(self) -> str:
        return f"{self.table} {self.id} v{self.version} of {self.day}"


class Kind(Enum):
    """GOOD: a version. POISON: a version that PostgreSQL refuses. BROKEN: half of a message."""

    GOOD = "good"
    POISON = "poison"
    BROKEN = "broken"


class When(Enum):
    """The day of a version: today, or a day at an edge of what is kept or accepted."""

    TODAY = "today"
    YESTERDAY = "yesterday"
    OLDEST = "the first day that is kept"
    BEFORE = "the day before it"
    ARCHIVED = "the newest day in the archive"
    AHEAD = "the last day that is accepted"
    BEYOND = "the day after it"


@dataclass(frozen=True)
class Draft:
    """A message to send. content: goes into the snapshot, so two drafts can differ in one version.
    twin: to the migration topic. moment: an index of MOMENTS."""

    entity: int = 0
    twin: bool = False
    id: int = 0
    version: int = 0
    day: When = When.TODAY
    moment: int = 1
    content: int = 0
    kind: Kind = Kind.GOOD

    @property
    def topic(self) -> str:
        return ENTITIES[self.entity].topics[self.twin]


@dataclass(frozen=True)
class Sent:
    """A message in a topic. row: what must be stored of it, None if nothing can be. readable:
    whether it can be decoded. day: the UTC day of its version. sent: when it was sent."""

    topic: str
    offset: int
    value: bytes
    sent: datetime
    table: str
    day: date
    row: Row | None
    readable: bool

    @property
    def place(self) -> tuple[str, int]:
        return self.topic, self.offset

    @property
    def timestamp(self) -> int:
        """Milliseconds since the epoch."""
        return int(self.sent.timestamp() * 1000)

    def __str__(self) -> str:
        return f"{self.topic}@{self.offset} of {self.day}"


def make_sent(draft: Draft, day: date, offset: int, now: datetime) -> Sent:
    """The draft as the message at an offset of its topic."""
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
    number = "1e400000" if draft.kind is Kind.POISON else "12345678901234567890.10"
    value = json.dumps(fields).replace('"@"', number).encode()
    if draft.kind is Kind.BROKEN:
        value = value[:-2]
    row = _row(entity, fields, moment, number) if draft.kind is Kind.GOOD else None
    readable = draft.kind is not Kind.BROKEN
    return Sent(draft.topic, offset, value, now, entity.table, day, row, readable)


def _row(entity: EntityKind, fields: dict[str, Any], moment: datetime, number: str) -> Row:
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
    """Microseconds since the epoch."""
    return (moment - EPOCH) // timedelta.resolution


def to_canonical(text: str) -> str:
    """JSON text with sorted keys; numbers stay as they are written."""
    return json.dumps(json.loads(text, parse_float=Decimal), sort_keys=True, default=str)
