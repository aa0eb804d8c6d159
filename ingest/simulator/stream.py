"""The stream of messages: lives of applications, drawn first, then played side by side."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Final

from ingest.simulator.actors import STAFF
from ingest.simulator.children import PLOTS, PRODUCT_PLOT
from ingest.simulator.document import APPLICATION, Document, Message
from ingest.simulator.mutable_snapshot import new_id
from ingest.simulator.shape import (
    CHILD_SIZES_BELOW,
    CHILD_VERSIONS,
    KINDS,
    PRODUCT_VERSIONS,
    ROLES,
    STEPS,
    Spread,
    Weighted,
    size_at,
)

MEAN_MESSAGES: Final = 11.6  # of an application with its children; a test holds it
_NANOSECONDS: Final = 1_000_000_000
_TWINS = 0.015  # the chance that a version has the moment of the version before it


@dataclass(slots=True)
class Application:
    """One application: its documents, and for each message the document that changes."""

    rng: Random
    turns: list[Document]
    sent: int = 0
    twin: bool = False  # the next message has the moment of this one

    def next_message(self, now: int) -> Message:
        document = self.turns[self.sent]
        message = document.next_message(self.rng, document.last_moment if self.twin else now)
        self.sent += 1
        self.twin = (
            not self.over and self.turns[self.sent] is document and self.rng.random() < _TWINS
        )
        return message

    @property
    def over(self) -> bool:
        return self.sent == len(self.turns)


class Author:
    """Draws applications one after another, so that together they have the target distribution."""

    def __init__(self, seed: int) -> None:
        rng = Random(f"annals {seed}")
        self._seed = seed
        self._number = 0
        self._sizes, self._versions, self._kinds = (Spread(rng.random(), s) for s in STEPS)
        self._child_sizes, self._child_versions, _ = (Spread(rng.random(), s) for s in STEPS)
        self._kind = Weighted(KINDS)
        self._product = Weighted(PRODUCT_VERSIONS)
        self._child = Weighted(CHILD_VERSIONS)

    def draw(self) -> Application:
        rng = Random(f"annals {self._seed} {self._number}")
        self._number += 1
        kind = self._kind.at(self._kinds.next())
        staff = tuple(rng.sample(STAFF, 3))
        size = size_at(CHILD_SIZES_BELOW + (1 - CHILD_SIZES_BELOW) * self._sizes.next())
        versions = self._product.at(self._versions.next())
        own = new_id(rng)
        deleted = versions > 1 and rng.random() < 0.02
        product = Document(
            APPLICATION, own, own, kind, versions, size, deleted, PRODUCT_PLOT, staff
        )
        # A document's versions lie somewhere in the application's life 0..1, in order.
        turns = [(0.0 if n == 0 else rng.random(), product) for n in range(versions)]
        if deleted:  # with nothing after it: its children end before
            turns[-1] = (1.0, product)
        for role, chance in ROLES[kind].items():
            if rng.random() < chance:
                child = self._child_of(product, role, rng)
                born = rng.uniform(0.001, 0.3)
                turns += [
                    (born if n == 0 else rng.uniform(born, 1.0), child)
                    for n in range(child.versions)
                ]
        turns.sort(key=lambda turn: turn[0])
        return Application(rng, [document for _, document in turns])

    def _child_of(self, product: Document, role: str, rng: Random) -> Document:
        entity, plot = PLOTS[role]
        versions = self._child.at(self._child_versions.next())
        size = size_at(CHILD_SIZES_BELOW * self._child_sizes.next())
        deleted = versions > 1 and rng.random() < 0.12
        staff = product.staff
        return Document(entity, new_id(rng), product.id, role, versions, size, deleted, plot, staff)


def count_messages(seed: int, applications: int) -> int:
    """How many messages `stream` gives for the seed; much cheaper than to make them."""
    author = Author(seed)
    return sum(len(author.draw().turns) for _ in range(applications))


def stream(
    seed: int,
    start: datetime,
    *,
    applications: int | None = None,
    step: timedelta = timedelta(milliseconds=5),
    side_by_side: int = 256,
) -> Iterator[Message]:
    """Messages of `applications` applications (None: without end), in the order they happen.

    The same seed and start give the same bytes. Message k happens at start + k * step, to the
    resolution of its clock, except twins: two versions of one document that share their moment.
    side_by_side: how many applications live at a time; an application with m messages lasts
    about m * side_by_side steps. The versions of a document come in order, from 0 by one.
    A naive start is an error.
    """
    if start.tzinfo is None:
        raise ValueError("start needs a time zone")
    now = round(start.timestamp() * 1_000_000) * 1000
    tick = round(step.total_seconds() * _NANOSECONDS)
    author, rng = Author(seed), Random(f"annals {seed} order")
    waiting: list[tuple[float, int, Application]] = []
    born = 0
    for number in count():
        while len(waiting) < side_by_side and (applications is None or born < applications):
            # The first ones are spread over a life, so that their ends are spread too.
            due = number + rng.random() * side_by_side * (MEAN_MESSAGES if number == 0 else 2)
            heappush(waiting, (due, born, author.draw()))
            born += 1
        if not waiting:
            return
        due, place, application = heappop(waiting)
        yield application.next_message(now + tick * number + int(rng.random() * tick * 0.8))
        if not application.over:
            pause = 0.0 if application.twin else 2 * rng.random() * side_by_side
            heappush(waiting, (due + pause, place, application))
