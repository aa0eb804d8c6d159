"""The state machine of the lifecycle test: its rules, and the check after each step."""

import sys
from contextlib import ExitStack, redirect_stderr
from dataclasses import replace
from io import StringIO
from operator import attrgetter

from hypothesis import strategies as st
from hypothesis.errors import HypothesisException
from hypothesis.stateful import RuleBasedStateMachine, rule

from history.retention.seals.seal import YOUNGEST_DAYS
from tests.lifecycle.checks import LifecycleStep, check
from tests.lifecycle.consumer import collect_warnings
from tests.lifecycle.faults import install_faults
from tests.lifecycle.model import Model, find_newest_archived
from tests.lifecycle.observed import TableDay
from tests.lifecycle.record import RunCounts, hash_state
from tests.lifecycle.sent import TOPICS, Draft
from tests.lifecycle.stand import (
    AHEAD,
    HOLD,
    RETENTION,
    START,
    LifecycleResult,
    LifecycleStand,
    run_command,
    set_wrong_clock,
)
from tests.lifecycle.strategies import (
    AFTERWARDS,
    DRAFTS,
    HISTORIES,
    HOURS,
    LATE,
    MOSTLY_PACKS,
    OLDEST,
    OVERLAPS,
    PACKS,
    WHILE_PACKED,
    draw_faults,
)
from tests.lifecycle.tamper import Damage, Tampering, damage, tamper
from tests.lifecycle.work import FENCED, Fault, Work

record = RunCounts()


class Lifecycle(RuleBasedStateMachine):
    """The state machine of all days of one store, from their creation to the archive.

    The rules do not have preconditions of Hypothesis. A rule returns at once if it is not possible.

    With preconditions, the values that Hypothesis draws would depend on the state of the store. In
    a repetition of an example, two processes can finish in a different order, and so lead to a
    different state.
    """

    def __init__(self) -> None:
        super().__init__()
        record.examples += 1
        self._stack = ExitStack()
        self._stack.enter_context(redirect_stderr(StringIO()))  # the commands show progress there
        warnings = self._stack.enter_context(collect_warnings())
        self._stack.enter_context(install_faults())
        self.stand = LifecycleStand()
        self._stack.callback(self.stand.close)
        self.model = Model(START, RETENTION, AHEAD, HOLD)
        self.work = Work(self.stand, self.model, warnings)
        self._stack.callback(self.work.close)

    def teardown(self) -> None:
        error = sys.exception() if sys.version_info >= (3, 12) else sys.exc_info()[1]
        if isinstance(error, Exception) and not isinstance(error, HypothesisException):
            record.fail()
        self._stack.close()

    # Rules about messages.

    @rule(hours=HOURS, drafts=DRAFTS, read=st.booleans())
    def send(self, hours: int, drafts: list[Draft], read: bool) -> None:
        """Send messages, and let the consumer decode them if `read` is set."""
        self._send(hours, drafts)
        if read:
            self.work.get_or_start_consumer().read(len(drafts), self.work.seen)
        self._check(LifecycleStep("send"))

    @rule(hours=HOURS, drafts=DRAFTS, fault=draw_faults("write"))
    def store(self, hours: int, drafts: list[Draft], fault: Fault | None) -> None:
        """Send messages, and let the consumer decode and write them."""
        self._send(hours, drafts)
        self._do("write", fault)

    @rule(hours=HOURS, fault=draw_faults("write"))
    def write(self, hours: int, fault: Fault | None) -> None:
        """Let `hours` pass, and let the consumer write all messages that are not written yet."""
        self.work.pass_time(hours)
        if self.work.has_unwritten_batch or self.work.has_unread:
            self._do("write", fault)

    @rule()
    def claim(self) -> None:
        """Let a second consumer claim the topic partitions."""
        if self.work.has_unwritten_batch:
            self._do("claim")

    @rule()
    def write_fenced(self) -> None:
        """Let a consumer that lost its topic partitions try to write."""
        work = self.work
        if work.fenced is None or not work.fenced.batch.messages:
            return
        successor, work.consumer, work.fenced = work.consumer, work.fenced, None
        step = self._do("write")
        work.consumer = successor
        assert step.output == FENCED, "a consumer that lost its partitions could write"

    # Rules about cron and retention.

    @rule(nights=st.integers(0, 3), fault=draw_faults("maintain"))
    def maintain(self, nights: int, fault: Fault | None) -> None:
        """Let cron run `maintain` after each of the next `nights` midnights, or now if 0."""
        for nights_left in range(max(nights, 1), 0, -1):
            if nights:
                self.work.pass_time(-1)
            self._do("maintain", fault if nights_left == 1 else None)

    @rule(days=st.integers(1, 5) | st.none(), cron=st.booleans())
    def retention(self, days: int | None, cron: bool) -> None:
        """Change retention, and let cron run afterwards if `cron` is set.

        Args:
            days: The new retention. If it is None, retention becomes so long that the window has
                the newest archived day again.
        """
        newest = find_newest_archived(self.work.seen)
        if days is None:
            days = (self.model.today - newest).days if newest else RETENTION + 1
        self._set_retention(days)
        if cron:
            self._do("maintain")

    # Rules about what people do.

    @rule(day=st.integers(0, 3), fault=draw_faults("restore"))
    def restore(self, day: int, fault: Fault | None) -> None:
        if self.work.seen.archived:
            self._do("restore", fault, day)

    @rule(drafts=LATE, overlap=OVERLAPS, cron=st.booleans())
    def restore_and_write(
        self, drafts: list[Draft], overlap: tuple[str, Fault], cron: bool
    ) -> None:
        """Set retention so that it includes the newest archived day. Restore this day, and write
        rows of this day meanwhile.

        Args:
            cron: Whether `maintain` runs before the restore, and creates an empty partition.
        """
        newest = find_newest_archived(self.work.seen)
        if newest is None:
            return
        self._set_retention((self.model.today - newest).days)
        if cron:
            self._do("maintain")
        self._send(0, drafts)
        self._do(*overlap)
        self._do("write")

    @rule(day=st.integers(0, 2))
    def release(self, day: int) -> None:
        if any(state.restored for state in self.work.seen.days.values()):
            self._do("release", None, day)

    @rule(day=st.integers(0, 3), fault=draw_faults("seal"))
    def seal(self, day: int, fault: Fault | None) -> None:
        if self.work.seen.days:
            self._do("seal", fault, day)

    @rule(name=PACKS, day=st.integers(0, 3), fault=draw_faults("pack"), drafts=OLDEST)
    def pack(self, name: str, day: int, fault: Fault | None, drafts: list[Draft]) -> None:
        """Pack or unpack a day by hand, while rows of this day can arrive."""
        if self.work.list_finished():
            if fault is not None and fault.action == "write":
                self._send(0, drafts)
            self._do(name, fault, day)

    @rule(drafts=HISTORIES | OLDEST, name=MOSTLY_PACKS, meanwhile=WHILE_PACKED, after=AFTERWARDS)
    def pack_and_write(self, drafts: list[Draft], name: str, meanwhile: Fault, after: str) -> None:
        """Pack a day during a write to this day, and then send the first version of the day again.

        The first version is in a block, but is not the newest version of the block. So the primary
        key does not contain the first version, and only a search of the block finds the repeat.
        """
        self._set_retention(max(self.model.retention, YOUNGEST_DAYS + 1))
        self._do("maintain")
        if self.model.oldest not in self.work.list_finished_days():
            return
        day = self.work.list_finished_days().index(self.model.oldest)
        self._send(0, drafts)
        self._do("write")
        if meanwhile.action.startswith("write"):
            self._send(0, [replace(draft, id=1 - draft.id) for draft in drafts])
        self._do(name, replace(meanwhile, day=day), day)
        self._do("insert_again", None, day)
        self._send(0, [min(drafts, key=attrgetter("version"))])
        self._do(after, None, day)

    @rule(day=st.integers(0, 3))
    def pack_beside_an_earlier_release(self, day: int) -> None:
        """Pack while a process is connected that cannot read blocks: the command must refuse."""
        if not self.work.list_finished():
            return
        with self.stand.connect_as_an_earlier_release():
            step = self._do("pack", None, day)
        assert step.code == 2, "a day was packed beside a release that cannot read it"
        assert "a process of an earlier release is connected" in step.output, step.output

    @rule(drafts=OLDEST, ahead=st.booleans())
    def store_with_a_wrong_clock(self, drafts: list[Draft], ahead: bool) -> None:
        """Write a batch while the clock of the consumer's machine is six days wrong."""
        self._send(0, drafts)
        self._do("write_ahead" if ahead else "write_behind")

    @rule(day=st.integers(0, 3), again=st.booleans())
    def write_sql(self, day: int, again: bool) -> None:
        """Write a version with SQL: a new version, or a stored version if `again` is set."""
        if self.work.list_finished():
            self._do("insert_again" if again else "insert", None, day)

    @rule(days=st.integers(1, 6))
    def pack_today(self, days: int) -> None:
        """Try to pack today on a machine with a clock that is `days` days ahead.

        Today then looks like a finished day, but the command must refuse.
        """
        with set_wrong_clock(days):
            result = run_command("partitions", "pack", str(self.model.today))
        assert result.code == 2, f"today was packed: {result}"
        assert "the clock of this machine" in result.output, result.output
        self._check(LifecycleStep("pack_today"))

    @rule(fault=draw_faults("retry"))
    def retry(self, fault: Fault | None) -> None:
        if self.work.seen.quarantine:
            self._do("retry", fault)

    @rule(topic=st.integers(0, len(TOPICS) - 1))
    def discard(self, topic: int) -> None:
        if self.work.seen.quarantine:
            result = run_command(
                "quarantine", "discard", "--topic", TOPICS[topic], "--why", "not wanted"
            )
            self._check(LifecycleStep("discard", code=result.code, output=result.output))

    @rule(number=st.integers(0, 3), how=st.sampled_from(Tampering))
    def tamper(self, number: int, how: Tampering) -> None:
        """Change a sealed day with SQL, expect `verify` to report it, and undo the change."""
        places = self._list_sealed_with_rows()
        if not places:
            return
        place = places[number % len(places)]
        undo = tamper(self.stand.plain, self.work.seen.days[place].name, how)
        result = run_command("partitions", "verify")
        where = f"{place[0]} {place[1]}"
        assert result.code == 1, f"verify does not notice: {how.value} in {where}: {result}"
        assert where in result.output, f"verify does not name {where}: {result}"
        undo()
        self._check(LifecycleStep("tamper"))

    @rule(
        number=st.integers(0, 3),
        how=st.sampled_from(Damage),
        position=st.integers(0, 4000),
        act=st.sampled_from([None, "maintain", "restore"]),
    )
    def damage(self, number: int, how: Damage, position: int, act: str | None) -> None:
        """Damage a file of the archive, expect `verify --archive` to report it, and repair it.

        Args:
            act: An act to do while the file is damaged.
        """
        files = sorted(
            (f"{table} {day}", name)
            for (table, day), names in self.work.seen.archived.items()
            for name in names
        )
        if not files:
            return
        where, name = files[number % len(files)]
        undo = damage(self.stand.archive / name, how, position)
        result = run_command("partitions", "verify", "--archive")
        assert result.code == 1, f"verify --archive does not notice: {how.value} {name}: {result}"
        assert where in result.output, f"verify --archive does not name {where}: {result}"
        step = self.work.do(act) if act else LifecycleStep("damage")
        step.fault = "damage"
        undo()
        self._check(step)
        result = run_command("partitions", "verify", "--archive")
        assert result == LifecycleResult(), f"verify --archive complains: {result}"

    def _list_sealed_with_rows(self) -> list[TableDay]:
        """Return the sealed days for which `partitions verify` compares the rows of the tables.

        For a day that is in the archive and was not restored, `partitions verify` compares the
        rows of the archive instead.
        """
        seen = self.work.seen
        filled = {(row.table, row.day) for row in seen.rows}
        return sorted(
            place
            for place in filled & seen.sealed.keys()
            if seen.days[place].restored or place not in seen.archived
        )

    def _set_retention(self, days: int) -> None:
        self.model.retention = days
        self.model.note_moved_window()
        self.stand.set_retention(days)
        record.steps["retention"] += 1

    def _send(self, hours: int, drafts: list[Draft]) -> None:
        self.work.pass_time(hours)
        for draft in drafts:
            self.model.send(draft, self.work.seen)
        if self.work.consumer is not None:
            self.work.consumer.record_ends()

    def _do(self, name: str, fault: Fault | None = None, day: int = 0) -> LifecycleStep:
        step = self.work.do(name, fault, day)
        self._check(step)
        return step

    def _check(self, step: LifecycleStep) -> None:
        record.steps[step.name] += 1
        if not step.alone:
            record.meanwhile[step.meanwhile or step.fault or ""] += 1
        before, after = self.work.seen, self.work.observer.observe()
        wrong = check(self.model, before, after, step)
        self.work.seen = after
        record.states.add(hash_state(self.model, after))
        if after.sealed and step.name != "send":
            verified = run_command("partitions", "verify")
            if verified.code:
                wrong.append(f"verify complains: {verified.output}")
        assert not wrong, "\n".join(wrong)
