"""Generates a realistic load in memory: loan applications of a bank with their versions."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Final, NamedTuple, TypeVar

import msgspec

from annals.demo import vocabulary
from annals.demo.documents import (
    ChangeContext,
    SimulatedDocument,
    change_child,
    change_product,
    create_child,
    create_product,
    encode,
    generate_id,
)
from history.documents.record import ChangeType
from history.kinds.entities import BY_NAME

T = TypeVar("T")
APPLICATION: Final = "product-instance"
MEAN_MESSAGES: Final = 11.6  # of an application with its children; a test checks it
LIVE_RPS: Final = 200.0

# Sizes of message values in bytes, by quantile. Children have the sizes below _CHILDREN_BELOW,
# applications the others.
_SIZES: Final[Sequence[tuple[float, int]]] = (
    (0.0, 300),
    (0.01, 340),
    (0.04, 540),
    (0.1, 850),
    (0.17, 1_130),
    (0.25, 1_372),
    (0.375, 1_520),
    (0.5, 1_665),
    (0.625, 1_795),
    (0.75, 1_950),
    (0.83, 2_160),
    (0.9, 2_690),
    (0.95, 3_350),
    (0.97, 3_800),
    (0.99, 6_420),
    (0.995, 7_300),
    (0.999, 11_500),
    (1.0, 35_500),
)
_CHILDREN_BELOW: Final = 0.2
# Weights of the number of versions: together half of the documents have at most 4, 95% at most 12.
_PRODUCT_VERSIONS: Final[Mapping[int, float]] = {
    1: 1.0,
    2: 1.5,
    3: 2.0,
    4: 3.0,
    5: 8.0,
    6: 11.0,
    7: 12.0,
    8: 12.0,
    9: 11.0,
    10: 9.5,
    11: 8.5,
    12: 12.5,
    13: 1.5,
    14: 1.3,
    15: 1.1,
    16: 0.9,
    18: 1.5,
    20: 1.1,
    22: 1.8,
    27: 0.8,
    31: 0.3,
    36: 0.3,
    42: 0.2,
    50: 0.1,
}
_CHILD_VERSIONS: Final[Mapping[int, float]] = {
    1: 66.0,
    2: 11.0,
    3: 5.0,
    4: 12.5,
    5: 3.0,
    6: 2.0,
    8: 0.5,
}
_LOAN_WEIGHTS: Final[Mapping[str, float]] = {"mortgage": 0.24, "car": 0.16, "consumer": 0.60}
# By loan: the role of a child, the chance of such a child, and its kind.
_CHILD_CHANCES: Final[Mapping[str, Sequence[tuple[str, float, str]]]] = {
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
# The chance that a version has the moment of its previous version.
_SAME_MOMENT_CHANCE: Final = 0.015
_SECOND: Final = 1_000_000_000
# In nanoseconds. Most services have clocks with nanoseconds, some with microseconds, few with
# milliseconds.
_CLOCK_RESOLUTIONS: Final = (*(1,) * 8, 1_000, 1_000, 1_000_000)


class SimulatedMessage(msgspec.Struct, frozen=True, gc=False):
    """A message for Kafka, with the fields that tests compare."""

    entity: str
    topic: str
    key: bytes
    value: bytes
    version: int
    type: ChangeType
    updated_at: int  # microseconds since 1970, UTC
    client_id: str
    author: str | None
    product_instance_id: str  # the application; its own id for an application


class SimulationPlan(NamedTuple):
    """The messages that a simulation generates, how fast it sends them, and when it stops.

    See `generate_messages` for `step` and `side_by_side`.
    """

    seed: int
    start: datetime
    step: timedelta
    side_by_side: int
    applications: int | None
    messages: int | None
    rps: float  # messages per second; 0: no limit


def plan_simulation(
    now: datetime,
    seed: int,
    *,
    rps: float | None = None,
    seconds: float | None = None,
    applications: int | None = None,
    messages: int | None = None,
    days: float = 0.0,
) -> SimulationPlan:
    """Plan how long, how fast and over which days a simulation runs.

    Args:
        now: The present moment.
        seed: Determines all random values.
        rps: Messages per second; 0 is as fast as possible. Default: LIVE_RPS, or 0 with `days`.
        seconds: Stop after this time.
        applications: Stop after this number of complete applications.
        messages: Stop after this number of messages.
        days: The moments of the versions are spread over this number of days up to `now`. 0: they
            begin at `now`.

    Raises:
        ValueError: `days` is given without a limit on the number of messages.
    """
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
        # At full speed a step is shorter than making a message takes, so moments stay in the past.
        start, step = now, timedelta(seconds=1 / rps) if rps else timedelta(microseconds=20)
        # A run that ends early leaves applications incomplete: the shorter they live, the fewer.
        lives = 6 if applications is not None else 20
        life = timedelta(seconds=30)
        life = life if total is None else min(life, step * total / lives)
    side_by_side = max(round(life / step / MEAN_MESSAGES), 1)
    return SimulationPlan(seed, start, step, side_by_side, applications, total, rps)


def count_messages(seed: int, applications: int) -> int:
    """Return how many messages `generate_messages` generates for a number of applications.

    Counting is much cheaper than generating the messages.
    """
    return sum(len(_ApplicationLife(seed, number).unsent) for number in range(applications))


def generate_messages(
    seed: int,
    start: datetime,
    *,
    applications: int | None = None,
    step: timedelta = timedelta(milliseconds=5),
    side_by_side: int = 256,
) -> Iterator[SimulatedMessage]:
    """Generate the messages of simulated applications, in the order of their moments.

    The arguments determine each byte. Versions of a document come in order: 0, 1, 2. The moment of
    message k is about start + k * step. Some versions have exactly the moment of the document's
    previous version instead.

    Args:
        seed: Determines all random values.
        start: The first moment. It must be timezone-aware.
        applications: How many applications to generate. None: without end.
        step: The time between two messages.
        side_by_side: How many applications are in progress at a time.

    Raises:
        ValueError: `start` is not timezone-aware.
    """
    if start.tzinfo is None:
        raise ValueError("start needs a time zone")
    now = round(start.timestamp() * 1_000_000) * 1000
    tick = round(step.total_seconds() * _SECOND)
    rng = Random(f"annals {seed} order")
    waiting: list[tuple[float, int, _ApplicationLife]] = []
    created = 0
    for number in count():
        while len(waiting) < side_by_side and (applications is None or created < applications):
            # The first applications begin at different times, so that not all end at once.
            due = number + rng.random() * side_by_side * (MEAN_MESSAGES if number == 0 else 2)
            heappush(waiting, (due, created, _ApplicationLife(seed, created)))
            created += 1
        if not waiting:
            return
        due, birth_number, life = heappop(waiting)
        yield life.make_next_message(now + tick * number + int(rng.random() * tick * 0.8))
        if life.unsent:
            pause = 0.0 if life.repeats_moment else 2 * rng.random() * side_by_side
            heappush(waiting, (due + pause, birth_number, life))


class _ApplicationLife:
    """The messages about one application and its children that the simulator has not sent yet.

    Attributes:
        unsent: For each message that is not sent yet, the document that the message is about. The
            list is in reverse order: `pop()` returns the document of the next message.
        repeats_moment: Whether the next message has the moment of its document's previous version.
    """

    def __init__(self, seed: int, number: int) -> None:
        self.rng = rng = Random(f"annals {seed} {number}")
        self.repeats_moment = False
        loan = _choose_weighted(rng, _LOAN_WEIGHTS)
        self._staff = rng.sample(vocabulary.STAFF, 3)
        self._id = generate_id(rng)
        product = self._draw_document(
            APPLICATION, loan, _PRODUCT_VERSIONS, (_CHILDREN_BELOW, 1.0), 0.02
        )
        # The versions of a document are at random points of the application's life (0..1).
        messages = [(0.0 if n == 0 else rng.random(), product) for n in range(product.versions)]
        if product.deleted:  # its deletion is the last message of the application
            messages[-1] = (1.0, product)
        for role, chance, kind in _CHILD_CHANCES[loan]:
            if rng.random() < chance:
                child = self._draw_document(
                    kind, role, _CHILD_VERSIONS, (0.0, _CHILDREN_BELOW), 0.12
                )
                born = rng.uniform(0.001, 0.3)
                messages.append((born, child))
                messages += [(rng.uniform(born, 1.0), child) for _ in range(child.versions - 1)]
        messages.sort(key=lambda message: message[0], reverse=True)
        self.unsent = [document for _, document in messages]

    def _draw_document(
        self,
        entity: str,
        role: str,
        versions: Mapping[int, float],
        sizes: tuple[float, float],
        deleted: float,
    ) -> SimulatedDocument:
        version_count = _choose_weighted(self.rng, versions)
        return SimulatedDocument(
            entity=entity,
            id=self._id if entity == APPLICATION else generate_id(self.rng),
            application=self._id,
            role=role,
            versions=version_count,
            size=_get_size_at(self.rng.uniform(*sizes)),
            deleted=version_count > 1 and self.rng.random() < deleted,
            staff=self._staff,
        )

    def make_next_message(self, now: int) -> SimulatedMessage:
        """Make the next message. `now` is in nanoseconds since 1970."""
        document = self.unsent.pop()
        moment = now - now % self.rng.choice(_CLOCK_RESOLUTIONS)
        if self.repeats_moment or moment % _SECOND == 0:  # a moment always has a fraction
            moment = document.last_moment if self.repeats_moment else now
        document.last_moment = moment = max(moment, document.last_moment)
        following = self.unsent[-1] if self.unsent else None
        self.repeats_moment = following is document and self.rng.random() < _SAME_MOMENT_CHANCE
        return _make_next_version(document, self.rng, moment)


def _make_next_version(document: SimulatedDocument, rng: Random, moment: int) -> SimulatedMessage:
    document.version += 1
    last = document.version == document.versions - 1
    progress = document.version / max(document.versions - 1, 1)
    context = ChangeContext(
        rng, _format_moment(moment), progress, last, _choose_author(rng, document.staff)
    )
    change, service = ChangeType.UPDATE, None
    is_product = document.entity == APPLICATION
    if document.version == 0:
        change = ChangeType.CREATE
        (create_product if is_product else create_child)(document, context)
    elif last and document.deleted:
        change = ChangeType.DELETE
    else:
        service = (change_product if is_product else change_child)(document, context)
    client = service or rng.choice(vocabulary.FRONT_ENDS)
    author = None if service else context.author
    return SimulatedMessage(
        document.entity,
        BY_NAME[document.entity].topics[0],
        document.id.encode(),
        _encode_value(document, change, context, client, author),
        document.version,
        change,
        moment // 1000,
        client,
        author,
        document.application,
    )


def _encode_value(
    document: SimulatedDocument,
    change: ChangeType,
    context: ChangeContext,
    client: str,
    author: str | None,
) -> bytes:
    head: dict[str, object] = {
        "id": document.id,
        "version": document.version,
        "type": change.name,
        "updatedAt": context.at,
        "clientId": client,
    }
    if author is not None:
        head["author"] = author
    if document.application != document.id:
        head["productInstanceId"] = document.application
    if change is ChangeType.DELETE:
        # The contract does not have this field, and consumers must ignore it.
        child = document.application != document.id
        head["reason"] = "Удалено, запись ошибочна" if child else "Клиент отозвал согласие"
    if change is ChangeType.DELETE and context.rng.random() < 0.5:
        return encode({**head, "data": None})
    # Each change sets the technical fields. The hash is of all other fields.
    digest = blake2b(encode(document.snapshot), digest_size=8).hexdigest()
    technical = {
        "modifiedAt": context.at,
        "modifiedBy": author or client,
        "etag": f"{document.version}-{digest[:6]}",
        "hash": digest,
    }
    return encode({**head, "data": {**document.snapshot, **technical}})


def _choose_author(rng: Random, staff: Sequence[str]) -> str:
    """Choose an author: mostly one of the application's staff, sometimes another employee."""
    return rng.choice(
        rng.choices((staff, vocabulary.STAFF, vocabulary.NEWCOMERS), (850, 142, 8))[0]
    )


def _choose_weighted(rng: Random, weights: Mapping[T, float]) -> T:
    return rng.choices(tuple(weights), tuple(weights.values()))[0]


def _get_size_at(quantile: float) -> int:
    """Return a quantile (0..1) of the sizes of message values, in bytes."""
    index = min(max(bisect_left(_SIZES, (quantile,)), 1), len(_SIZES) - 1)
    (low, smaller), (high, larger) = _SIZES[index - 1 : index + 1]
    return round(smaller + (larger - smaller) * (quantile - low) / (high - low))


def _format_moment(nanoseconds: int) -> str:
    """Format a moment as Java does: ISO 8601 without offset; 3, 6 or 9 fractional digits."""
    seconds, fraction = divmod(nanoseconds, _SECOND)
    digits = f"{fraction:09d}"
    while digits.endswith("000") and len(digits) > 3:
        digits = digits[:-3]
    return f"{datetime.fromtimestamp(seconds, UTC).isoformat()[:19]}.{digits}"
