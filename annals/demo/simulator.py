"""Realistic load: loan applications of a bank, living through their versions. Pure: no I/O."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Final, NamedTuple, TypeVar

import msgspec

from annals.demo import words
from annals.demo.documents import (
    Document,
    Turn,
    change_child,
    change_product,
    create_child,
    create_product,
    encode,
    new_id,
)
from history.entities import BY_NAME
from history.record import ChangeType

T = TypeVar("T")
APPLICATION: Final = "product-instance"
MEAN_MESSAGES: Final = 11.6  # of an application with its children; a test holds it
LIVE_RPS: Final = 200.0

# Bytes of a message value at a quantile. Children share the lowest fifth of the sizes.
_SIZES: Final[Sequence[tuple[float, int]]] = (
    *((0.0, 300), (0.01, 340), (0.04, 540), (0.1, 850), (0.17, 1_130), (0.25, 1_372)),
    *((0.375, 1_520), (0.5, 1_665), (0.625, 1_795), (0.75, 1_950), (0.83, 2_160), (0.9, 2_690)),
    *((0.95, 3_350), (0.97, 3_800), (0.99, 6_420), (0.995, 7_300), (0.999, 11_500), (1.0, 35_500)),
)
_CHILDREN_BELOW: Final = 0.2
# Weights of the number of versions: together half of the documents have at most 4, 95% at most 12.
_PRODUCT_VERSIONS: Final[Mapping[int, float]] = {
    1: 1.0, 2: 1.5, 3: 2.0, 4: 3.0, 5: 8.0, 6: 11.0, 7: 12.0, 8: 12.0, 9: 11.0, 10: 9.5,
    11: 8.5, 12: 12.5, 13: 1.5, 14: 1.3, 15: 1.1, 16: 0.9, 18: 1.5, 20: 1.1, 22: 1.8, 27: 0.8,
    31: 0.3, 36: 0.3, 42: 0.2, 50: 0.1,
}  # fmt: skip
_CHILD_VERSIONS: Final[Mapping[int, float]] = {
    1: 66.0, 2: 11.0, 3: 5.0, 4: 12.5, 5: 3.0, 6: 2.0, 8: 0.5,
}  # fmt: skip
_LOANS: Final[Mapping[str, float]] = {"mortgage": 0.24, "car": 0.16, "consumer": 0.60}
# Chance that an application has a child of a role, and the child's kind.
_ROLES: Final[Mapping[str, Sequence[tuple[str, float, str]]]] = {
    "mortgage": (
        ("BORROWER", 1.0, "participant-role"),
        ("CO_BORROWER", 0.35, "participant-role"),
        ("GUARANTOR", 0.06, "participant-role"),
        ("REALTY", 0.55, "realty-info"),
        ("TASK", 0.30, "product-task"),
    ),
    "car": (
        ("BORROWER", 0.95, "participant-role"),
        ("GUARANTOR", 0.05, "participant-role"),
        ("CAR", 0.60, "product-car"),
        ("TASK", 0.10, "product-task"),
    ),
    "consumer": (("BORROWER", 0.76, "participant-role"), ("TASK", 0.04, "product-task")),
}
_TWINS: Final = 0.015  # the chance that a version has the moment of the version before it
_SECOND: Final = 1_000_000_000
# Most clocks upstream give nanoseconds, some microseconds, a few milliseconds.
_CLOCKS: Final = (*(1,) * 8, 1_000, 1_000, 1_000_000)


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message for Kafka. updated_at: microseconds since 1970 UTC. product_instance_id: the
    application; for itself, its own id."""

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


class Plan(NamedTuple):
    """The arguments of `stream`, when to stop, and messages per second (0: no limit)."""

    seed: int
    start: datetime
    step: timedelta
    side_by_side: int
    applications: int | None
    messages: int | None
    rps: float


def plan(
    now: datetime,
    seed: int,
    *,
    rps: float | None = None,
    seconds: float | None = None,
    applications: int | None = None,
    messages: int | None = None,
    days: float = 0.0,
) -> Plan:
    """How long, how fast and over which days a simulation runs. days: over the past. Raises
    ValueError if days are given without a limit of messages."""
    if rps is None:
        rps = 0.0 if days else LIVE_RPS
    bounds = [
        messages,
        round(seconds * rps) if seconds is not None and rps else None,
        count_messages(seed, applications) if applications is not None else None,
    ]
    total = min((bound for bound in bounds if bound is not None), default=None)
    if days:
        if total is None:
            raise ValueError(
                "--days needs a bound: --applications, --messages, or --seconds with --rps"
            )
        span = timedelta(days=days)
        start, step, life = now - span, span / max(total, 1), min(timedelta(days=3), span / 4)
    else:
        # Without a pace a step is shorter than a message takes: never in the future.
        start, step = now, timedelta(seconds=1 / rps) if rps else timedelta(microseconds=20)
        # A run that is cut leaves applications incomplete; short lives leave fewer.
        part = 6 if applications is not None else 20
        life = timedelta(seconds=30)
        life = life if total is None else min(life, step * total / part)
    side_by_side = max(round(life / step / MEAN_MESSAGES), 1)
    return Plan(seed, start, step, side_by_side, applications, total, rps)


def count_messages(seed: int, applications: int) -> int:
    """How many messages `stream` gives for the seed; much cheaper than to make them."""
    return sum(len(_Life(seed, number).turns) for number in range(applications))


def stream(
    seed: int,
    start: datetime,
    *,
    applications: int | None = None,
    step: timedelta = timedelta(milliseconds=5),
    side_by_side: int = 256,
) -> Iterator[Message]:
    """Messages of `applications` applications (None: without end), in the order they happen. The
    same seed and start give the same bytes. A naive start is an error.

    Message k happens at start + k * step, except twins: two versions of one document at one moment.
    side_by_side: how many applications live at a time. Versions come in order, from 0 by one.
    """
    if start.tzinfo is None:
        raise ValueError("start needs a time zone")
    now = round(start.timestamp() * 1_000_000) * 1000
    tick = round(step.total_seconds() * _SECOND)
    rng = Random(f"annals {seed} order")
    waiting: list[tuple[float, int, _Life]] = []
    born = 0
    for number in count():
        while len(waiting) < side_by_side and (applications is None or born < applications):
            # The first ones are spread over a life, so that their ends are spread too.
            due = number + rng.random() * side_by_side * (MEAN_MESSAGES if number == 0 else 2)
            heappush(waiting, (due, born, _Life(seed, born)))
            born += 1
        if not waiting:
            return
        due, place, life = heappop(waiting)
        yield life.next_message(now + tick * number + int(rng.random() * tick * 0.8))
        if life.turns:
            pause = 0.0 if life.twin else 2 * rng.random() * side_by_side
            heappush(waiting, (due + pause, place, life))


class _Life:
    """One application. turns: for each message that is left the document that changes, the next
    one last. twin: the next message has the moment of the message before it."""

    def __init__(self, seed: int, number: int) -> None:
        self.rng = rng = Random(f"annals {seed} {number}")
        self.twin = False
        loan = _one_of(rng, _LOANS)
        self._staff = rng.sample(words.STAFF, 3)
        self._id = new_id(rng)
        product = self._document(APPLICATION, loan, _PRODUCT_VERSIONS, (_CHILDREN_BELOW, 1.0), 0.02)
        # A document's versions lie somewhere in the application's life 0..1, in order.
        turns = [(0.0 if n == 0 else rng.random(), product) for n in range(product.versions)]
        if product.deleted:  # with nothing after it: its children end before
            turns[-1] = (1.0, product)
        for role, chance, kind in _ROLES[loan]:
            if rng.random() < chance:
                child = self._document(kind, role, _CHILD_VERSIONS, (0.0, _CHILDREN_BELOW), 0.12)
                born = rng.uniform(0.001, 0.3)
                turns.append((born, child))
                turns += [(rng.uniform(born, 1.0), child) for _ in range(child.versions - 1)]
        turns.sort(key=lambda turn: turn[0], reverse=True)
        self.turns = [document for _, document in turns]

    def _document(
        self,
        entity: str,
        role: str,
        versions: Mapping[int, float],
        sizes: tuple[float, float],
        deleted: float,
    ) -> Document:
        many = _one_of(self.rng, versions)
        return Document(
            entity=entity,
            id=self._id if entity == APPLICATION else new_id(self.rng),
            application=self._id,
            role=role,
            versions=many,
            size=_size_at(self.rng.uniform(*sizes)),
            deleted=many > 1 and self.rng.random() < deleted,
            staff=self._staff,
        )

    def next_message(self, now: int) -> Message:
        """now: nanoseconds since 1970."""
        document = self.turns.pop()
        moment = now - now % self.rng.choice(_CLOCKS)
        if self.twin or moment % _SECOND == 0:  # a moment always has a fraction
            moment = document.last_moment if self.twin else now
        document.last_moment = moment = max(moment, document.last_moment)
        following = self.turns[-1] if self.turns else None
        self.twin = following is document and self.rng.random() < _TWINS
        return _next_version(document, self.rng, moment)


def _next_version(document: Document, rng: Random, moment: int) -> Message:
    document.version += 1
    last = document.version == document.versions - 1
    progress = document.version / max(document.versions - 1, 1)
    turn = Turn(rng, _iso(moment), progress, last, _someone(rng, document.staff))
    change, service = ChangeType.UPDATE, None
    is_product = document.entity == APPLICATION
    if document.version == 0:
        change = ChangeType.CREATE
        (create_product if is_product else create_child)(document, turn)
    elif last and document.deleted:
        change = ChangeType.DELETE
    else:
        service = (change_product if is_product else change_child)(document, turn)
    client = service or rng.choice(words.FRONT_ENDS)
    author = None if service else turn.author
    return Message(
        document.entity,
        BY_NAME[document.entity].topics[0],
        document.id.encode(),
        _value(document, change, turn, client, author),
        document.version,
        change,
        moment // 1000,
        client,
        author,
        document.application,
    )


def _value(
    document: Document, change: ChangeType, turn: Turn, client: str, author: str | None
) -> bytes:
    head: dict[str, object] = {
        "id": document.id,
        "version": document.version,
        "type": change.name,
        "updatedAt": turn.at,
        "clientId": client,
    }
    if author is not None:
        head["author"] = author
    if document.application != document.id:
        head["productInstanceId"] = document.application
    if change is ChangeType.DELETE:
        # A field that the contract does not have: readers must ignore it.
        child = document.application != document.id
        head["reason"] = "Удалено, запись ошибочна" if child else "Клиент отозвал согласие"
    if change is ChangeType.DELETE and turn.rng.random() < 0.5:
        return encode({**head, "data": None})
    # The technical fields, which every change sets; the hash is that of the others.
    digest = blake2b(encode(document.snapshot), digest_size=8).hexdigest()
    technical = {
        "modifiedAt": turn.at,
        "modifiedBy": author or client,
        "etag": f"{document.version}-{digest[:6]}",
        "hash": digest,
    }
    return encode({**head, "data": {**document.snapshot, **technical}})


def _someone(rng: Random, staff: Sequence[str]) -> str:
    """Mostly the people of this application, sometimes anyone of the bank."""
    return rng.choice(rng.choices((staff, words.STAFF, words.NEWCOMERS), (850, 142, 8))[0])


def _one_of(rng: Random, weights: Mapping[T, float]) -> T:
    return rng.choices(tuple(weights), tuple(weights.values()))[0]


def _size_at(quantile: float) -> int:
    """Bytes of a message value at a quantile in 0..1."""
    place = min(max(bisect_left(_SIZES, (quantile,)), 1), len(_SIZES) - 1)
    (low, least), (high, most) = _SIZES[place - 1 : place + 1]
    return round(least + (most - least) * (quantile - low) / (high - low))


def _iso(nanoseconds: int) -> str:
    """ISO 8601 without an offset; 3, 6 or 9 fractional digits, as Java prints a local time."""
    seconds, fraction = divmod(nanoseconds, _SECOND)
    digits = f"{fraction:09d}"
    while digits.endswith("000") and len(digits) > 3:
        digits = digits[:-3]
    return f"{datetime.fromtimestamp(seconds, UTC).isoformat()[:19]}.{digits}"
