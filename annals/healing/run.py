"""One run of `annals gaps heal`: asks each source for what is missing, and closes what came."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, time
from time import monotonic
from typing import Final

from annals.healing import memory, wanted
from annals.healing.keep import Kept, keep
from annals.healing.outbox_source import SourceError
from annals.healing.wanted import Asked, Document
from history.entities import ENTITIES
from history.fallback import WrongAnswerError
from history.gaps import judge
from history.gaps.scan import LOCK
from history.timeline.neighbours import CLOCK_TOLERANCE
from history.window import Window
from ingest.store.outside import Outside

# While a run asks it has this lock, so that two runs ask each thing once.
RUN_LOCK: Final = LOCK + 1
# Wrong answers in a row, before a source counts as broken.
WRONG_ANSWERS: Final = 3
# Versions of a source in quarantine in one run, before it counts as broken.
MOST_QUARANTINED: Final = 100
# What a source can have of a run: answers for one document, and seconds. What is left then is asked
# for in the next run, so a source without end keeps nobody from being asked.
MOST_ANSWERS: Final = 200
MOST_SECONDS: Final = 1_800.0


@dataclass(frozen=True, slots=True)
class Selection:
    """What is asked for. limit: documents of each source. again: also what was answered before, of
    sources that are to be left alone."""

    entity: str | None = None
    limit: int | None = None
    again: bool = False


@dataclass(slots=True)
class Outcome:
    """What came of one source. documents: of those asked for. wrong: answers that were refused
    whole. failed: why no more was asked. later: when it is asked again, because it failed before.
    unfinished: what is left is asked for in the next run.
    """

    source: str
    documents: int = 0
    kept: Kept = field(default_factory=Kept)
    wrong: int = 0
    failed: str = ""
    later: datetime | None = None
    unfinished: bool = False

    @property
    def ok(self) -> bool:
        return not (self.wrong or self.failed or self.later or self.unfinished)


class BusyError(Exception):
    """Another run is asking."""


def heal(
    outside: Outside,
    sources: Sequence[Asked],
    selection: Selection,
    window: Callable[[], Window],
    report: Callable[[], None] = lambda: None,
) -> Iterator[Outcome]:
    """Ask the sources one after the other. report: called after each document. Raises BusyError,
    psycopg.Error, django.db.Error; what was answered before is kept."""
    row = outside.connection.execute("SELECT pg_try_advisory_lock(%s)", [RUN_LOCK]).fetchone()
    if row != (True,):
        raise BusyError
    try:
        # A run that was killed may have stored versions of gaps that are still open.
        _judge(window())
        for source in sources:
            yield _of_source(outside, source, selection, window, report)
    finally:
        if not outside.connection.closed:
            outside.connection.execute("SELECT pg_advisory_unlock(%s)", [RUN_LOCK])


def documents(source: Asked, selection: Selection) -> Iterator[list[Document]]:
    """The documents that a source is asked for, some at a time."""
    left = selection.limit
    for found in wanted.of(source, selection.entity, again=selection.again):
        yield found[:left]
        left = None if left is None else left - len(found)
        if left is not None and left <= 0:
            return


def _of_source(
    outside: Outside,
    source: Asked,
    selection: Selection,
    window: Callable[[], Window],
    report: Callable[[], None],
) -> Outcome:
    done = Outcome(source.name)
    if not selection.again:
        done.later = memory.not_before(outside.connection, source.name)
    if done.later is not None:
        return done
    in_a_row, end = 0, monotonic() + MOST_SECONDS
    for some in documents(source, selection):
        for document in some:
            try:
                done.documents += 1
                _ask(outside, source, document, done, end)
                in_a_row = 0
            except WrongAnswerError as error:
                memory.wrong(outside.connection, source.name, document, str(error))
                done.wrong, in_a_row = done.wrong + 1, in_a_row + 1
                if in_a_row == WRONG_ANSWERS:
                    done.failed = f"{WRONG_ANSWERS} wrong answers in a row: {error}"
                    memory.failed(outside.connection, source.name, done.failed)
            except SourceError as error:
                done.failed = str(error)
                memory.failed(outside.connection, source.name, done.failed, error.wait)
            report()
            if done.failed or monotonic() > end:
                break
        _judge(window())
        if done.failed:
            break
        if monotonic() > end:
            done.unfinished = True
            break
    return done


def _ask(outside: Outside, source: Asked, document: Document, done: Outcome, end: float) -> None:
    """Keep the answers for a document, as far as the limits allow."""
    for number, answer in enumerate(source.answers(document), 1):
        done.kept.add(keep(outside, source, document, answer))
        if done.kept.quarantined >= MOST_QUARANTINED:
            text = f"{done.kept.quarantined} of its versions break the message contract"
            raise SourceError(text)
        if number == MOST_ANSWERS or monotonic() > end:
            done.unfinished = True
            return


def _judge(window: Window) -> None:
    """Close the gaps of what came."""
    edge = datetime.combine(window.oldest, time(), UTC) + CLOCK_TOLERANCE
    for entity in judge.pending(ENTITIES):
        while judge.judge(entity, edge):
            pass
