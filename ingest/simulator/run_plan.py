"""How long, how fast and over which days a simulation runs, computed from the options."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from ingest.simulator.pace import LIVE_RPS
from ingest.simulator.stream import MEAN_MESSAGES, count_messages

_UNPACED_STEP = timedelta(microseconds=20)  # shorter than a message takes: never in the future
_LIVE_LIFE = timedelta(seconds=30)
_PAST_LIFE = timedelta(days=3)


class PlanError(ValueError):
    """The options contradict each other. The message says what is missing."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The options as given. None: not given. rps 0: as fast as possible. days: over the past."""

    seed: int
    rps: float | None = None
    seconds: float | None = None
    applications: int | None = None
    messages: int | None = None
    days: float = 0.0


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The arguments of `stream`, when to stop, and messages per second (0: no limit)."""

    seed: int
    start: datetime
    step: timedelta
    side_by_side: int
    applications: int | None
    messages: int | None
    rps: float


def plan(asked: Asked, now: datetime) -> RunPlan:
    """Raises PlanError if days are given without a limit of messages."""
    rps = asked.rps
    if rps is None:
        rps = 0.0 if asked.days else LIVE_RPS
    total = _total(asked, rps)
    if asked.days:
        if total is None:
            raise PlanError(
                "--days needs a bound: --applications, --messages, or --seconds with --rps"
            )
        span = timedelta(days=asked.days)
        start, step = now - span, span / max(total, 1)
        life = min(_PAST_LIFE, span / 4)
    else:
        start, step = now, timedelta(seconds=1 / rps) if rps else _UNPACED_STEP
        # A run that is cut leaves applications incomplete; short lives leave fewer.
        part = 6 if asked.applications is not None else 20
        life = _LIVE_LIFE if total is None else min(_LIVE_LIFE, step * total / part)
    return RunPlan(
        seed=asked.seed,
        start=start,
        step=step,
        side_by_side=max(round(life / step / MEAN_MESSAGES), 1),
        applications=asked.applications,
        messages=total,
        rps=rps,
    )


def _total(asked: Asked, rps: float) -> int | None:
    """How many messages there will be; None if there is no limit."""
    bounds = []
    if asked.messages is not None:
        bounds.append(asked.messages)
    if asked.seconds is not None and rps:
        bounds.append(round(asked.seconds * rps))
    if asked.applications is not None:
        bounds.append(count_messages(asked.seed, asked.applications))
    return min(bounds, default=None)
