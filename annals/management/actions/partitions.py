"""What `annals partitions` does."""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date
from functools import partial
from typing import Any, TypeVar

import psycopg
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import Error as DatabaseError
from django.db import connection
from psqlextra.partitioning import PostgresPartitioningError

from annals.access import sessions
from annals.access.journal import days as journal
from annals.access.journal.actions import AccessAction
from annals.access.journal.write import record_operator_access
from annals.management import packing_days
from annals.management.verifying import verify_archive, verify_tables
from history.common import clock, schema
from history.common.complaints import ExplainedError
from history.common.error_sentences import explain_known_error
from history.common.error_text import describe
from history.common.text_tables import pluralize, print_table
from history.kinds.entities import (
    BY_NAME,
    BY_TABLE,
    ENTITIES,
    EntityKind,
)
from history.kinds.kind import DayRows
from history.management.progress import show_progress
from history.models import ArchivedDay
from history.retention import catalog, packing, runs, tables
from history.retention import search_keys as search_retention
from history.retention.archive import operator_decisions, provenance
from history.retention.archive.restore import restore_day
from history.retention.archive.store import ArchiveError, ArchiveStore
from history.retention.archive.write import DayArchiver
from history.retention.maintain import MaintainOutcome, execute_plans
from history.retention.plan import FindHeldDays, PartitionPolicy, build_plans
from history.retention.repair import repair_day
from history.retention.run_lock import NoRunLockError, hold_run_lock
from history.retention.seals import late_rows, verification
from history.retention.seals.nightly import find_days_to_seal, seal_days
from history.retention.seals.seal import seal_day
from history.retention.strategy import DayPartition
from history.store.database import forms
from history.store.days.canonical import Connection
from history.store.days.days import build_partition_name, is_packed, release_day
from ingest.completeness.holds import find_days_to_hold
from ingest.quarantine import messages as quarantine_retention
from ingest.store import empty_offsets

Chosen = TypeVar("Chosen", EntityKind, journal.JournalRows)

BROKEN_ERRORS = (PostgresPartitioningError, DatabaseError, psycopg.Error, OSError, ExplainedError)


class PartitionsRun:
    """The action of one call of the command."""

    # Which days must not be dropped yet.
    holds: FindHeldDays = staticmethod(find_days_to_hold)

    def __init__(self, command: BaseCommand) -> None:
        self.stdout, self.stderr = command.stdout, command.stderr

    def handle(self, *_: object, **options: Any) -> None:
        self.options = options
        holds = None if options.get("force") else self.holds
        self.policy = PartitionPolicy.at(clock.now(), holds)
        if options["action"] == "maintain" and options["dry_run"]:
            options["action"] = "plan"
        try:
            code = getattr(self, f"_{options['action']}")()
        except NoRunLockError as error:
            self.stderr.write(f"Nothing done: {error}.")
            code = 1
        except BrokenPipeError:
            raise  # the reader of standard output has left
        except BROKEN_ERRORS as error:
            plain = (
                str(error)
                if isinstance(error, PostgresPartitioningError)
                else explain_known_error(error)
            )
            raise CommandError(plain or describe(error), returncode=2) from error
        if code:
            sys.exit(code)

    def _list(self) -> int:
        parts = catalog.read_partitions(
            connection, [table.name for table in journal.list_day_tables()]
        )
        if self.options["json"]:
            self.stdout.write(json.dumps([tables.build_partition_object(part) for part in parts]))
        else:
            if not parts and (problem := schema.explain_database()) is not None:
                raise CommandError(problem, returncode=2)  # without the tables there are none
            print_table(self.stdout, tables.build_partition_table(parts))
            total = tables.format_size(sum(part.bytes for part in parts))
            self.stdout.write(f"{pluralize(len(parts), 'partition')}, {total}.")
        return 0

    def _plan(self) -> int:
        plans = build_plans(self.policy, tables=journal.list_day_tables())
        lines = [line for table in plans for line in table.list_lines()]
        counts = {
            action: sum(line.action == action for line in lines)
            for action in ("create", "drop", "keep")
        }
        packed = packing_days.find_due_days(self.policy.today)
        if self.options["json"]:
            days = {
                "oldest": str(self.policy.window.oldest),
                "newest": str(self.policy.window.newest),
            }
            objects = [tables.build_line_object(line) for line in lines]
            pack = [build_partition_name(*place) for place in packed]
            answer = {"window": days, **counts, "partitions": objects, "pack": pack}
            self.stdout.write(json.dumps(answer))
            return 0
        print_table(self.stdout, tables.build_plan_table(lines, self.options["each"]))
        freed = tables.format_size(sum(line.part.bytes for line in lines if line.action == "drop"))
        self.stdout.write(
            f"Window {self.policy.window.oldest} to {self.policy.window.newest} (UTC): "
            f"{counts['create']} to create, {counts['drop']} to drop ({freed}), "
            f"{counts['keep']} to keep."
        )
        for line in packing_days.describe_days(packed):
            self.stdout.write(line)
        if packed and (
            packing_wait := forms.explain_wait(forms.find_unready(connection.connection))
        ):
            self.stdout.write(_format_sentence(packing_wait))
        try:
            clock.check_clocks(connection.connection)
        except clock.WrongClockError as error:
            self.stderr.write(f"`maintain` would do nothing: {error}.")
        return 0

    def _check_clock(self) -> None:
        """Retention by a wrong clock would remove what is young. Raises WrongClockError."""
        connection.ensure_connection()
        plain = connection.connection
        try:
            clock.check_clocks(plain)
        except clock.WrongClockError as error:
            outcome = MaintainOutcome()
            outcome.note_failure("clock", error)
            runs.record_run(outcome, clock.read_server_time(plain), 0)
            raise

    def _maintain(self) -> int:
        if self.options["accept_changed"] and not self.options["why"]:
            raise CommandError("--accept-changed needs --why: the reason is kept in the journal")
        self._check_clock()
        started, started_clock = clock.now(), time.monotonic()

        def report(action: str, part: DayPartition, error: Exception | None) -> None:
            advance(1)
            if self.options["each"] and error is None and not self.options["json"]:
                self.stdout.write(f"{action} {part.full_name}: {part.reason}")

        url = settings.ANNALS.archive_url
        archiver = DayArchiver(ArchiveStore(url)) if url else None
        # The lock also between the steps: another run would end this one halfway.
        with hold_run_lock():
            with show_progress(
                "create, archive, drop, seal, pack, days", None, sys.stderr
            ) as advance:
                outcome = execute_plans(
                    self.policy, report, archiver=archiver, tables=journal.list_day_tables(),
                    check=self._check_day,
                )  # fmt: skip
                self._seal_due(outcome, advance)
                packing_days.pack_due(self.policy.today, outcome, advance)
            self._remove_old(outcome)
        seconds = time.monotonic() - started_clock
        runs.record_run(outcome, started, seconds)
        self._print_summary(outcome, archiver, seconds)
        return outcome.exit_code

    def _check_day(self, plain: Connection, table: str, day: date) -> None:
        """Raises verification.SealedDayChangedError if the day is not as it was sealed, and
        ArchiveError if it would be dropped without the archive of this installation."""
        unarchived = table != journal.TABLE and not settings.ANNALS.archive_url
        if unarchived and not self.options["without_archive"] and ArchivedDay.objects.exists():
            raise ArchiveError(
                "is not dropped: this installation archives days, and ANNALS_ARCHIVE_URL is unset. "
                "Set it, or give --without-archive"
            )
        rows = journal.ROWS if table == journal.TABLE else BY_TABLE[table]
        try:
            verification.check_sealed_day(plain, rows, day)
        except verification.SealedDayChangedError:
            if day != self.options["accept_changed"]:
                raise
            if is_packed(plain, table, day):
                raise ExplainedError(
                    f"{table} {day} is packed: run `partitions unpack {day}` before it is accepted"
                ) from None
            command_line = f"partitions maintain --accept-changed {day}"
            record_operator_access(
                AccessAction.OTHER, command_line, self.options["why"], entity=rows.name
            )
            verification.accept_changed_day(table, day)

    def _seal_due(self, outcome: MaintainOutcome, advance: Callable[[int], None]) -> None:
        """Seal the days that are finished and settled."""
        with hold_run_lock():
            existing = catalog.read_partitions(connection, [entity.table for entity in ENTITIES])
            after = settings.ANNALS.seal_days
            due_days, waiting = find_days_to_seal(
                existing, self.policy.today, after, find_days_to_hold
            )
            outcome.unsealed += [(*place, reason) for place, reason in sorted(waiting.items())]
            try:
                journal.create_skipped_days(self.policy.today)
            except psycopg.Error as failed:
                outcome.note_failure(journal.TABLE, failed)
            days = [*due_days, *journal.find_days_to_seal(self.policy.today)]
            for rows, day, error in seal_days(days):
                outcome.note_result(outcome.sealed, build_partition_name(rows.table, day), error)
                advance(1)
            late_rows.forget_dropped_days(connection.connection)

    def _remove_old(self, outcome: MaintainOutcome) -> None:
        """Remove what belongs to no kept day: search keys, and messages in quarantine."""
        plain, window = connection.connection, self.policy.window
        try:
            with hold_run_lock():
                existing = catalog.read_partitions(
                    connection, [entity.table for entity in ENTITIES]
                )
                before = search_retention.find_oldest_searched_day(existing, window.oldest)
                outcome.search_keys_removed = search_retention.remove_old_keys(plain, before)
                outcome.search_keys_before = before
                hold_days = settings.ANNALS.hold_days
                removed_messages = quarantine_retention.remove_old_messages(
                    plain, window, hold_days, clock.now()
                )
                empty_offsets.remove_old_ranges(plain, window)
        except psycopg.Error as error:
            outcome.note_failure("retention of search keys and quarantine", error)
        else:
            outcome.quarantine_removed = removed_messages
        try:
            outcome.logins_removed = sessions.remove_ended_sessions(clock.now())
        except DatabaseError as error:
            outcome.note_failure("rows of logins that have ended", error)

    def _print_summary(
        self, outcome: MaintainOutcome, archiver: DayArchiver | None, seconds: float
    ) -> None:
        archived = archiver.archived.values() if archiver else ()
        in_table, in_files = (
            sum(m.table_bytes for m in archived),
            sum(m.file_bytes for m in archived),
        )
        if self.options["json"]:
            archive = {"days": len(archived), "tableBytes": in_table, "fileBytes": in_files}
            answer = {**outcome.as_object(), "archived": archive, "seconds": round(seconds, 3)}
            self.stdout.write(json.dumps(answer))
            return
        for name in outcome.busy:
            self.stdout.write(f"{name}: locked by an open transaction, left for the next run")
        for name in outcome.held:
            self.stdout.write(f"{name}: held, see `partitions plan`; --force drops it")
        for name, error in outcome.broken:
            self.stdout.write(f"{name}: {error}")
        if outcome.packing_waits:
            self.stdout.write(_format_sentence(outcome.packing_waits))
        reasons = Counter((table, reason) for table, _, reason in outcome.unsealed)
        for (table, reason), count in reasons.items():
            self.stdout.write(f"{table}: {pluralize(count, 'day')} not sealed: {reason}")
        if archived:
            self.stdout.write(
                f"Archived {pluralize(len(archived), 'day')}: {tables.format_size(in_table)} in "
                "tables, "
                f"{tables.format_size(in_files)} in Parquet, ratio {in_files / in_table:.3f}."
            )
        self.stdout.write(
            f"Created {len(outcome.created)}, dropped {len(outcome.dropped)} "
            f"({tables.format_size(outcome.freed)}), sealed {len(outcome.sealed)}, "
            f"packed {len(outcome.packed)}, "
            f"held {len(outcome.held)}, busy {len(outcome.busy)}, "
            f"broken {len(outcome.broken)}, in {seconds:.1f} s."
        )
        if outcome.dropped:
            self.stdout.write(f"The longest detach took {outcome.longest_detach:.3f} s.")
        if outcome.search_keys_removed or outcome.quarantine_removed:
            self.stdout.write(
                "Older than retention and removed: "
                f"{pluralize(outcome.search_keys_removed, 'search key')}, "
                f"{pluralize(outcome.quarantine_removed, 'message')} in quarantine."
            )

    def _restore(self) -> int:
        store, day = _open_archive(), self.options["day"]

        def restore_one(plain: Connection, entity: EntityKind) -> str:
            record_operator_access(
                AccessAction.OTHER, f"partitions restore {day}", entity=entity.name
            )
            provenance.check_provenance(plain, store, entity, day)
            restored = restore_day(plain, store, entity, day)
            return f"Restored {entity.table} {day}: {pluralize(restored.rows, 'row')}."

        return self._run_locked(restore_one)

    def _release(self) -> int:
        day = self.options["day"]

        def release_one(plain: Connection, entity: EntityKind) -> str:
            if not release_day(plain, entity.table, day):
                name = build_partition_name(entity.table, day)
                raise ArchiveError(f"{name} was not restored from the archive")
            return f"Released {entity.table} {day}."

        return self._run_locked(release_one)

    def _forget(self) -> int:
        return self._decide_for_each(
            operator_decisions.forget_day, "Removed {} from the archive: {}."
        )

    def _adopt(self) -> int:
        return self._decide_for_each(
            operator_decisions.adopt_day, "The archived rows of {} count: {}."
        )

    def _decide_for_each(
        self, decide: Callable[[ArchiveStore, str, date], int], sentence: str
    ) -> int:
        store, day, reason = _open_archive(), self.options["day"], self.options["why"]

        def decide_one(_: Connection, entity: EntityKind) -> str:
            command_line = f"partitions {self.options['action']} {day}"
            record_operator_access(AccessAction.OTHER, command_line, reason, entity=entity.name)
            rows = decide(store, entity.table, day)
            return sentence.format(f"{entity.table} {day}", pluralize(rows, "row"))

        return self._run_locked(decide_one)

    def _run_locked(self, act: Callable[[Connection, EntityKind], str]) -> int:
        """Do it for each of the chosen tables, with the lock of maintain's runs. Raises
        WrongClockError: what is finished, and what is noted, is said by a clock."""
        self._require_clock()
        with hold_run_lock():
            return self._run_for_each(act, self._choose_entities())

    def _require_clock(self) -> None:
        """Raise WrongClockError if this machine and the server do not agree on the time."""
        connection.ensure_connection()
        clock.check_clocks(connection.connection)

    def _pack(self) -> int:
        return self._run_locked(
            partial(self._rewrite, packing.pack_day, "Packed", day=self.options["day"])
        )

    def _unpack(self) -> int:
        """Unpack a day, or all. Once none is packed, earlier releases may work again."""
        day: date | None = self.options["day"]
        if (day is None) is not self.options["all"]:
            raise CommandError("Name the day, or give --all.", returncode=2)
        self._require_clock()
        code = 0
        with hold_run_lock():
            tables = {entity.table: entity for entity in self._choose_entities()}
            places = [(table, day) for table in tables] if day else packing_days.find_packed_days()
            for table, packed_day in places:
                if table in tables:
                    act = partial(self._rewrite, packing.unpack_day, "Unpacked", day=packed_day)
                    code = max(code, self._run_for_each(act, [tables[table]]))
            packed_days = packing_days.find_packed_days()
            if not packed_days:
                forms.withdraw(connection.connection)
                self.stdout.write("No day is packed: an earlier release can read every day.")
            elif not day:
                self.stdout.write(
                    f"{pluralize(len(packed_days), 'table')} of days are still packed."
                )
        return code

    def _rewrite(
        self,
        rewrite: Callable[..., packing.RewriteResult],
        word: str,
        plain: Connection,
        entity: EntityKind,
        *,
        day: date,
    ) -> str:
        """Pack or unpack a day of one table; return what was done, for people."""
        with show_progress(f"{entity.table} {day}, rows", None, sys.stderr) as advance:
            result = rewrite(plain, entity, day, progress=advance)
        return (
            f"{word} {entity.table} {day}: {pluralize(result.rows, 'row')}, "
            f"{tables.format_size(result.before)} before, {tables.format_size(result.after)} now."
        )

    def _repair(self) -> int:
        day = self.options["day"]

        def repair_one(plain: Connection, entity: EntityKind) -> str:
            record_operator_access(
                AccessAction.OTHER, f"partitions repair {day}", entity=entity.name
            )
            result = repair_day(plain, entity, day)
            for key in result.differing:
                self.stdout.write(
                    f"{entity.table} {day}: {key.id} version {key.version} had two contents; the"
                    " one that a block had stays, the other one is in the table doubled_version"
                )
            count = len(result.equal) + len(result.differing)
            return (
                f"Repaired {entity.table} {day}: {pluralize(count, 'row')} taken out, of which"
                f" {len(result.differing)} with another content."
            )

        return self._run_locked(repair_one)

    def _seal(self) -> int:
        day = self.options["day"]

        def seal_one(plain: Connection, rows: DayRows) -> str:
            verification.check_sealed_day(plain, rows, day)
            new_seal = seal_day(plain, rows, day)
            return f"Sealed {rows.table} {day}: {pluralize(new_seal.rows, 'row')}, {new_seal.seal}"

        if self.options["entity"] != journal.NAME:
            return self._run_locked(seal_one)
        self._require_clock()
        with hold_run_lock():
            return self._run_for_each(seal_one, [journal.ROWS])

    def _verify(self) -> int:
        name = self.options["entity"]
        if not self.options["archive"]:
            versions = [] if name == journal.NAME else self._choose_entities()
            journals = [] if name in BY_NAME else [journal.ROWS]
            return verify_tables([*versions, *journals], self.options, self.stdout, self.stderr)
        chosen_kind = BY_NAME.get(name)
        return verify_archive(_open_archive(), chosen_kind, self.options, self.stdout, self.stderr)

    def _run_for_each(
        self, act: Callable[[Connection, Chosen], str], targets: Sequence[Chosen]
    ) -> int:
        """Do it for each of the chosen tables, and report each result at once."""
        connection.ensure_connection()
        code = 0
        for target in targets:
            try:
                self.stdout.write(act(connection.connection, target))
            except (ExplainedError, OSError, psycopg.Error) as error:
                if connection.connection is None or connection.connection.closed:
                    raise  # and so is the lock of the runs
                self.stderr.write(f"{target.name}: {explain_known_error(error) or describe(error)}")
                code = 2
        return code

    def _choose_entities(self) -> list[EntityKind]:
        name = self.options["entity"]
        return [BY_NAME[name]] if name else list(ENTITIES)


def _format_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _open_archive() -> ArchiveStore:
    url = settings.ANNALS.archive_url
    if not url:
        raise ArchiveError("ANNALS_ARCHIVE_URL is not set, so there is no archive")
    return ArchiveStore(url)
