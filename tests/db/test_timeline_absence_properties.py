"""What is said of missing versions, checked against histories whose truth is known.

Two clocks differ by at most a day. Versions get lost on the way, retention removes what is dated
before its start, entities are deleted and created again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from history import timeline
from history.entities import ROOT
from history.record import ChangeType
from history.timeline import (
    Absence,
    NotFoundError,
    NoVersionError,
    OlderThanRetentionError,
    Query,
)
from history.timeline import neighbours as absence
from history.timeline.row import CLOCK_TOLERANCE
from tests.db.store import HOST, Store

HOUR = timedelta(hours=1)
WRONG = int(CLOCK_TOLERANCE / HOUR / 2)  # hours, each clock
FIRST_HOUR, LAST_HOUR = -150, 50  # from the start of retention


@dataclass(frozen=True)
class Event:
    """A change. after: hours since the one before. skew, born: how wrong its clock is, and the one
    that createdAt comes from, in hours."""

    after: int
    skew: int
    born: int
    arrives: bool
    delete: bool


@dataclass(frozen=True)
class Made:
    """A version as it really was. at: true time. dated: what its clock said."""

    number: int
    at: datetime
    dated: datetime
    type: ChangeType
    created: datetime
    arrives: bool


SKEW = st.sampled_from([-WRONG, 0, WRONG]) | st.integers(-WRONG, WRONG)
EVENTS = st.lists(
    st.builds(
        Event,
        st.integers(0, 3) | st.integers(0, 60) | st.just(5 * 24),
        SKEW,
        SKEW,
        st.integers(0, 3).map(lambda number: number > 0),
        st.integers(0, 5).map(lambda number: number == 0),
    ),
    min_size=1,
    max_size=9,
)


def play(events: list[Event], begin: int, start: datetime) -> list[Made]:
    """The history that these events make, from `begin` hours after the start of retention on."""
    made: list[Made] = []
    moment, created, deleted = start + begin * HOUR, start, True
    for number, event in enumerate(events):
        moment += event.after * HOUR
        dated = moment + event.skew * HOUR
        type = ChangeType.DELETE if event.delete and not deleted else ChangeType.UPDATE
        if deleted:
            type, created = ChangeType.CREATE, moment + event.born * HOUR
        deleted = type is ChangeType.DELETE
        made.append(Made(number, moment, dated, type, created, event.arrives))
    return made


def kept(made: Made, start: datetime) -> bool:
    return made.arrives and made.dated >= start


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    EVENTS,
    st.integers(-WRONG, WRONG) | st.integers(FIRST_HOUR, LAST_HOUR),
    st.booleans(),
)
def test_nothing_is_said_that_is_not_so(
    store: Store, events: list[Event], begin: int, witness: bool
) -> None:
    start = absence.kept_from()
    history = play(events, begin, start)
    with transaction.atomic():
        for made in history:
            if kept(made, start):
                data = {"createdAt": made.created.isoformat()} if witness else {}
                store.add("A1", made.number, data, made.dated, type=made.type)
        if any(kept(made, start) for made in history):
            _timeline(history, start)
            for moment in _undisputed(history):
                _moment(history, start, moment, witness)
        transaction.set_rollback(True)


def _timeline(history: list[Made], start: datetime) -> None:
    removed = {made.number for made in history if made.arrives and made.dated < start}
    for found in timeline.page(HOST, Query(entity=ROOT, id="A1")).versions:
        if found.missing_why is Absence.NEVER_ARRIVED:
            assert not removed & set(found.missing)
        below = removed & set(range(found.version))
        if found.older is Absence.NEVER_ARRIVED:
            # A life before this one may have been removed; of this one nothing was.
            born = max(m.number for m in history[: found.version] if m.type is ChangeType.CREATE)
            assert not {number for number in below if number >= born}
        if found.older is Absence.REMOVED:
            assert any(made.dated < start for made in history[: found.version])
        if found.previous_version is None and found.older is None:
            assert found.version <= 1


def _undisputed(history: list[Made]) -> Iterator[datetime]:
    """Moments so far from every change that no clock matters."""
    far = 2 * CLOCK_TOLERANCE
    yield history[0].at - far
    for made, later in zip(history, [*history[1:], None], strict=True):
        if later is None or later.at > made.at + 2 * far:
            yield made.at + far


def _moment(history: list[Made], start: datetime, moment: datetime, witness: bool) -> None:
    """What is said of an undisputed moment is the truth."""
    before = [made for made in history if made.at < moment]
    said: NotFoundError | None = None
    try:
        timeline.at(HOST, ROOT, "A1", moment)
    except NotFoundError as error:
        said = error
    if not before:
        lives = sum(made.type is ChangeType.CREATE for made in history)
        # Without a witness, or with a second life, the store cannot know when the first one began.
        assert isinstance(said, NoVersionError) or (said and (not witness or lives > 1))
    elif all(made.arrives and made.dated < start for made in before):
        lives = sum(made.type is ChangeType.CREATE for made in history)
        assert isinstance(said, OlderThanRetentionError) or lives > 1
    elif any(kept(made, start) for made in before):
        assert said is None
