"""One entity over its life: its versions, each as a Kafka message."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

import msgspec

from history.entities import BY_NAME
from history.record import ChangeType
from ingest.simulator.actors import FRONT_ENDS, NEWCOMERS, STAFF
from ingest.simulator.mutable_snapshot import MutableSnapshot, moment

# The kind that is the application itself; ingest.simulator.children has the others.
APPLICATION: Final = "product-instance"


class Message(msgspec.Struct, frozen=True, gc=False):
    """What goes to Kafka, and what it says, so that a test does not have to parse it.

    updated_at: microseconds since 1970-01-01 UTC, truncated as the store does it.
    product_instance_id: the application; for the application itself, its own id.
    complete: the last version that this document has.
    """

    entity: str
    topic: str
    key: bytes
    value: bytes
    version: int
    type: ChangeType
    updated_at: int
    client_id: str
    author: str | None
    product_instance_id: str
    complete: bool


class Actor(NamedTuple):
    """Who makes a change: a service, or a person through a front end."""

    client_id: str
    author: str | None = None


class Turn(NamedTuple):
    """The circumstances of one change. progress: 0 at CREATE, 1 at the last version."""

    rng: Random
    at: str
    progress: float
    last: bool
    actor: Actor


class Plot(NamedTuple):
    """How a kind of document begins and goes on. `change` may name another actor."""

    create: Callable[["Document", Turn], None]
    change: Callable[["Document", Turn], Actor | None]


@dataclass(slots=True)
class Document:
    """A document and what was drawn for it. size: bytes that its messages should have, roughly."""

    entity: str
    id: str
    product_instance_id: str
    role: str
    versions: int
    size: int
    deleted: bool
    plot: Plot
    staff: tuple[str, ...]
    version: int = -1
    snapshot: MutableSnapshot = field(default_factory=MutableSnapshot)
    last_moment: int = 0

    def room(self) -> int:
        """Bytes that are missing to the size the document should have."""
        around = _AROUND if self.product_instance_id == self.id else _AROUND_CHILD
        return self.size - self.snapshot.size() - around

    def next_message(self, rng: Random, now: int) -> Message:
        """The next version, at `now` (nanoseconds since 1970) or at the version before it."""
        self.version += 1
        now = self.last_moment = max(_in_clock_resolution(rng, now), self.last_moment)
        last = self.version == self.versions - 1
        turn = Turn(
            rng=rng,
            at=moment(now),
            progress=self.version / max(self.versions - 1, 1),
            last=last,
            actor=_someone(rng, self.staff),
        )
        actor, change = self._live(turn)
        by = actor.author or actor.client_id
        if change is ChangeType.DELETE and rng.random() < 0.5:
            data = b"null"
        else:
            data = self.snapshot.write(self.version, turn.at, by)
        return Message(
            self.entity,
            BY_NAME[self.entity].topics[0],
            self.id.encode(),
            self._envelope(change, turn.at, actor, data),
            self.version,
            change,
            now // 1000,
            actor.client_id,
            actor.author,
            self.product_instance_id,
            last,
        )

    def _live(self, turn: Turn) -> tuple[Actor, ChangeType]:
        if self.version == 0:
            self.plot.create(self, turn)
            return turn.actor, ChangeType.CREATE
        if turn.last and self.deleted:
            return turn.actor, ChangeType.DELETE
        return self.plot.change(self, turn) or turn.actor, ChangeType.UPDATE

    def _envelope(self, change: ChangeType, at: str, actor: Actor, data: bytes) -> bytes:
        head = (
            f'{{"id":"{self.id}","version":{self.version},"type":"{change.name}",'
            f'"updatedAt":"{at}","clientId":"{actor.client_id}"'
        )
        if actor.author is not None:
            head += f',"author":"{actor.author}"'
        if self.product_instance_id != self.id:
            head += f',"productInstanceId":"{self.product_instance_id}"'
        if change is ChangeType.DELETE:
            # A field that the contract does not have: readers must ignore it.
            head += f',"reason":"{_REASONS[self.product_instance_id == self.id]}"'
        return head.encode() + b',"data":' + data + b"}"


# Bytes of the envelope and the technical fields, on average.
_AROUND: Final = 287
_AROUND_CHILD: Final = 332
_REASONS = ("Удалено, запись ошибочна", "Заявка удалена: клиент отозвал согласие на обработку")
_GRAINS = (1, 1, 1, 1, 1, 1, 1, 1, 1_000, 1_000, 1_000_000)


def _in_clock_resolution(rng: Random, now: int) -> int:
    """Most clocks upstream give nanoseconds, some microseconds, a few milliseconds."""
    coarse = now - now % _GRAINS[int(rng.random() * len(_GRAINS))]
    # A moment without a fraction would make the smallest message shorter than the target.
    return coarse if coarse % 1_000_000_000 else now


def _someone(rng: Random, staff: tuple[str, ...]) -> Actor:
    """Mostly the people of this application, sometimes anyone of the bank."""
    draw = rng.random()
    if draw < 0.85:
        author = staff[int(draw / 0.85 * len(staff))]
    elif draw < 0.992:
        author = rng.choice(STAFF)
    else:
        author = rng.choice(NEWCOMERS)
    return Actor(FRONT_ENDS[rng.getrandbits(2) % len(FRONT_ENDS)], author)
