"""Counts the examples, steps and states of the lifecycle test in this process."""

import time
from collections import Counter
from dataclasses import dataclass, field

from tests.lifecycle.model import Model
from tests.lifecycle.observed import Observed


@dataclass
class RunCounts:
    """Counts of the examples, steps and states of the lifecycle test, and its first failure."""

    began: float = field(default_factory=time.monotonic)
    examples: int = 0
    steps: Counter[str] = field(default_factory=Counter)  # by the name of the act
    # Steps that a fault or a second act interrupted, by the name of this fault or second act.
    meanwhile: Counter[str] = field(default_factory=Counter)
    states: set[int] = field(default_factory=set)  # hashes of the states that were reached
    found_after: str = ""  # seconds, examples and steps until the first failure

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def fail(self) -> None:
        """Record that an example failed: set `found_after`, unless an earlier example failed."""
        if not self.found_after:
            self.found_after = (
                f"{self.seconds:.0f} s, {self.examples:,} examples, {self.steps.total():,} steps"
            )

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,} {name}" for name, count in self.steps.most_common())
        return (
            f"{self.examples:,} examples, {self.steps.total():,} steps ({counts});"
            f" {self.meanwhile.total():,} with a fault or another act in the middle;"
            f" {len(self.states):,} states; {self.seconds:.0f} s"
        )


def hash_state(model: Model, seen: Observed) -> int:
    """Return a hash of the days and their states, relative to the start of retention.

    The contents of rows do not count.
    """
    filled = {(row.table, row.day) for row in seen.rows}
    return hash(
        frozenset(
            (
                place[0],
                (place[1] - model.oldest).days,
                (day.attached, day.restored) if (day := seen.days.get(place)) else None,
                place in filled,
                place in seen.archived,
                place in seen.sealed,
                bool(model.list_unsettled(seen, place)),
                model.is_held(seen, place),
            )
            for place in {*seen.days, *seen.archived, *seen.sealed}
        )
    )
