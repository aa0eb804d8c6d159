"""The acts of the lifecycle test. A fault or a second act can interrupt an act.

An act is one thing that a consumer, a command or a person does to the store.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta

import psycopg
from django.db import connection
from psycopg import errors

from history.kinds.entities import BY_NAME
from history.retention.seals.seal import YOUNGEST_DAYS
from ingest.consumer.writers import AbandonedError
from ingest.store.ledger import FencedError
from tests.lifecycle.checks import LifecycleStep
from tests.lifecycle.consumer import Consumer, Warnings
from tests.lifecycle.faults import Point, SimulatedKill, Trap, set_trap
from tests.lifecycle.model import Model
from tests.lifecycle.observed import Observed, Observer, TableDay
from tests.lifecycle.sent import ROOT, Row
from tests.lifecycle.stand import LifecycleResult, LifecycleStand, run_command, set_wrong_clock

LONGEST_SECONDS = 60.0
# How long an interrupted act waits for a second act that neither ends nor waits for a lock.
STANDSTILL_SECONDS = 0.5
FENCED = "fenced"


class StuckActError(AssertionError):
    """Raised when an act does not end, although nothing blocks the act any more."""


@dataclass(frozen=True)
class Fault:
    """An interruption of an act: a killed process, a broken connection, or a second act."""

    point: Point
    # "kill" kills the process, and "cut" breaks the connection of the process. Any other word is
    # the name of the second act, which a second process does at the point.
    action: str
    day: int = 0  # the day of the second act, as an index
    midnight: bool = False  # whether the clock moves past midnight before the second act
    terminate: bool = False  # whether to end a session of the second act that waits for a lock


class Work:
    """Does the acts of the lifecycle test on one store and on the consumers of this store."""

    def __init__(self, stand: LifecycleStand, model: Model, warnings: Warnings) -> None:
        self._stand, self._model, self._warnings = stand, model, warnings
        self.observer = Observer(stand.plain, stand.archive)
        self.seen: Observed = self.observer.observe()  # the store after the latest step
        self.consumer: Consumer | None = None
        self.fenced: Consumer | None = None  # lost its partitions and does not know it

    @property
    def has_unwritten_batch(self) -> bool:
        """Whether the consumer has decoded messages that are not written."""
        return self.consumer is not None and self.consumer.batch.messages > 0

    @property
    def has_unread(self) -> bool:
        """Whether there are messages that the ledger does not count."""
        acknowledged = self._model.acknowledged
        return any(len(log) > acknowledged[topic] for topic, log in self._model.log.items())

    def do(self, name: str, fault: Fault | None = None, day: int = 0) -> LifecycleStep:
        """Do an act and let `fault` interrupt it. If `fault` starts a second act, wait for its end.

        Args:
            day: See act().
        """
        self._warnings.messages.clear()
        step, trap, meanwhile = LifecycleStep(name), None, None
        if fault is not None and fault.action in ("kill", "cut"):
            trap = Trap(fault.point, kill=fault.action == "kill")
        elif fault is not None:
            meanwhile = _ConcurrentAct(self, fault)
            trap = Trap(fault.point, act=meanwhile.start)
        try:
            with set_trap(trap):
                result = self.act(name, day)
            step.code, step.output = result.code, result.output
        except (SimulatedKill, Exception) as error:
            broken = trap is not None and trap.sprung and isinstance(error, psycopg.Error)
            if not broken and not (trap is not None and trap.dead):
                raise  # errors in the `finally` blocks of a killed process do not count
            step.code, step.output = 2, str(error)
        finally:
            if meanwhile is not None:
                meanwhile.join()
        if fault is not None and trap is not None and trap.sprung:
            step.fault, step.meanwhile = (None, fault.action) if meanwhile else (fault.action, None)
            self._stand.wait_for_end(trap.pids)
        if meanwhile is not None and meanwhile.terminated:
            step.fault = "cut"
        if step.fault:
            connection.close()
        if step.fault == "kill" and name in ("write", "claim") and self.consumer is not None:
            self._lose(self.consumer)
        step.retried = list(self._warnings.messages)
        return step

    def act(self, name: str, day: int) -> LifecycleResult:
        """Do the act of this name.

        Args:
            day: An index into the days for which the act is possible, the newest first.
        """
        plain: dict[str, Callable[[], LifecycleResult]] = {
            "write": self._write,
            "write_behind": lambda: self._write(-6),
            "write_ahead": lambda: self._write(6),
            "insert": lambda: self._insert(day),
            "insert_again": lambda: self._insert_again(day),
            "claim": self._claim,
            "maintain": lambda: run_command("partitions", "maintain"),
            "retry": lambda: run_command("quarantine", "retry", "--now"),
        }
        if name in plain:
            return plain[name]()
        possible = {
            "restore": self.seen.archived,
            "release": {place for place, state in self.seen.days.items() if state.restored},
            "seal": {place for place, state in self.seen.days.items() if state.attached},
            **dict.fromkeys(("pack", "unpack"), self.list_finished()),
        }[name]
        days = sorted({item for _, item in possible}, reverse=True)
        return (
            run_command("partitions", name, str(days[day % len(days)]))
            if days
            else LifecycleResult()
        )

    def list_finished(self) -> set[TableDay]:
        """Return the tables and days that can be packed."""
        end = self._model.today - timedelta(days=YOUNGEST_DAYS)
        return {
            place for place, state in self.seen.days.items() if state.attached and place[1] < end
        }

    def list_finished_days(self) -> list[date]:
        """Return the days on which at least one table can be packed, the newest first."""
        return sorted({day for _, day in self.list_finished()}, reverse=True)

    def get_or_start_consumer(self) -> Consumer:
        return self.consumer or self._take_over()

    def _write(self, days_ahead: int = 0) -> LifecycleResult:
        """Let the consumer write its batch.

        Args:
            days_ahead: By how many days the consumer's clock is wrong. Ignored if the batch has
                expired messages, bad messages, or messages of a day without a partition: for these,
                the model expects a right clock.
        """
        consumer = self.get_or_start_consumer()
        if not consumer.batch.messages:
            consumer.read(1_000, self.seen)
        batch = consumer.batch
        has_days = all(
            self.seen.has_partition((BY_NAME[name].table, day)) for name, day in batch.get_days()
        )
        if batch.expired or batch.bad_messages or not has_days:
            days_ahead = 0
        try:
            if batch.messages:
                with set_wrong_clock(days_ahead):
                    consumer.write()
        except FencedError:
            self._lose(consumer)
            return LifecycleResult(1, FENCED)
        except AbandonedError:
            raise StuckActError(
                f"the batch cannot be written: {self._warnings.messages[-1:]}"
            ) from None
        return LifecycleResult()

    def _insert(self, day: int) -> LifecycleResult:
        """Insert a version into a finished, unsealed day with SQL, as the owner of the tables."""
        place = self._choose_unsealed_day(day)
        if place is not None:
            row, text = self._model.make_row_by_hand(place[1])
            self._execute(row, text)
            self._model.by_hand[row] = text
            self._model.acknowledged_rows.add(row)
        return LifecycleResult()

    def _insert_again(self, day: int) -> LifecycleResult:
        """Insert a stored version again, as an earlier release that cannot read blocks would."""
        place = self._choose_unsealed_day(day)
        rows = sorted(row for row in self.seen.rows if (row.table, row.day) == place)
        if rows:
            # Leave out the last row. It is the newest of its block, and the primary key has it.
            with suppress(errors.UniqueViolation):
                self._execute(*self._model.repeat_row(rows[(7 * day) % max(1, len(rows) - 1)]))
        return LifecycleResult()

    def _choose_unsealed_day(self, day: int) -> TableDay | None:
        """Return a day of `list_finished_days` that is not sealed, or None if all are sealed.

        Args:
            day: The index of the preferred day.
        """
        candidates = self.list_finished() - self.seen.sealed.keys()
        places = sorted((place for place in candidates if place[0] == ROOT.table), reverse=True)
        if not places:
            return None
        preferred = ROOT.table, self.list_finished_days()[day % len(self.list_finished_days())]
        return preferred if preferred in places else places[day % len(places)]

    def _execute(self, row: Row, text: str) -> None:
        with self._stand.connect() as plain:
            plain.execute(
                f"INSERT INTO {row.table} (id, version, data, updated_at, client_id, author, type)"
                " VALUES (%s, %s, %s, 'epoch'::timestamptz + %s * interval '1 microsecond',"
                " %s, %s, %s)",
                [row.id, row.version, text, row.updated_at, row.client, row.author, row.type],
            )

    def _claim(self) -> LifecycleResult:
        self._take_over()
        return LifecycleResult()

    def _take_over(self) -> Consumer:
        """Return a new consumer that has claimed the topic partitions of the present consumer.

        The present consumer does not notice the claim. Two threads can call this at the same time.
        """
        consumer = Consumer(self._model)
        try:
            consumer.claim()
        except BaseException:
            consumer.close()
            raise
        if self.consumer is not None:
            if self.fenced is not None:
                self._lose(self.fenced)
            self.fenced = self.consumer
        self.consumer = consumer
        return consumer

    def _lose(self, consumer: Consumer) -> None:
        self._stand.wait_for_end(consumer.close())
        if self.consumer is consumer:
            self.consumer = None
        if self.fenced is consumer:
            self.fenced = None

    def pass_time(self, hours: int) -> None:
        """Move the clock ahead by these hours, or to a minute after the next midnight if -1."""
        now = self._model.now
        if hours < 0:
            midnight = now.replace(hour=0, minute=1, second=0) + timedelta(days=1)
            self._model.now = midnight
        else:
            self._model.now = now + timedelta(hours=hours)
        self._model.note_moved_window()
        self._stand.set_clock(self._model.now)

    def has_waiting_session(self, terminate: bool) -> bool:
        """Return whether sessions wait for a lock. End these sessions if `terminate` is set."""
        pids = self._stand.list_waiting()
        if terminate:
            self._stand.terminate(pids)
        return bool(pids)

    def close(self) -> None:
        for consumer in (self.consumer, self.fenced):
            if consumer is not None:
                consumer.close()


class _ConcurrentAct:
    """A second act, in a thread with a separate connection that simulates a second process."""

    def __init__(self, work: Work, fault: Fault) -> None:
        self._work, self._fault = work, fault
        self._thread = threading.Thread(target=self._run)
        self._error: BaseException | None = None
        self.terminated = False

    def start(self) -> None:
        """Start the second act, and return when this act has ended or waits for a lock.

        The first act, which the second act interrupts, can hold the lock. If the second act neither
        ends nor waits for a lock, return after STANDSTILL_SECONDS.
        """
        if self._fault.midnight:
            self._work.pass_time(-1)
        self._thread.start()
        until = time.monotonic() + STANDSTILL_SECONDS
        while self._thread.is_alive() and time.monotonic() < until:
            if self._work.has_waiting_session(self._fault.terminate):
                self.terminated = self._fault.terminate
                return
            self._thread.join(0.002)

    def join(self) -> None:
        """Wait until the act has ended, and raise its error if it failed."""
        if self._thread.ident is not None:
            self._thread.join(LONGEST_SECONDS)
            if self._thread.is_alive():
                raise StuckActError(f"{self._fault.action} does not end")
        if self._error is not None and not self.terminated:
            raise self._error

    def _run(self) -> None:
        try:
            self._work.act(self._fault.action, self._fault.day)
        except BaseException as error:
            self._error = error
        finally:
            connection.close()
