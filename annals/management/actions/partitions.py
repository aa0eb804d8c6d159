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
from annals.access.journal.words import Action
from annals.access.journal.write import record
from annals.management import packing_days
from annals.management.verifying import verify_archive, verify_tables
from history import packing, schema
from history.archive import decisions, provenance
from history.archive.restore import restore
from history.archive.store import ArchiveError, Store
from history.archive.write import DayArchiver
from history.base import clock
from history.base.error_text import describe
from history.base.table import counted, print_table
from history.daily.canonical import Connection
from history.daily.days import is_packed, partition_name, release
from history.database import forms
from history.entities import BY_NAME, BY_TABLE, ENTITIES, Entity
from history.failure.complaints import Complaint
from history.failure.sentences import known
from history.kinds.kind import DayRows
from history.management.progress import progress
from history.models import ArchivedDay
from history.partitions import catalog, show, state
from history.partitions.exclusive import NoRunLockError, run_lock
from history.partitions.maintain import Outcome, maintain
from history.partitions.plan import Holds, Policy, plan
from history.partitions.strategy import DayPartition
from history.repairing import repair
from history.seals import late_rows, verification
from history.seals.finished import due, seal_days
from history.seals.seal import seal
from history.search_index import backfill as search_retention
from ingest.completeness.holds import may_get_rows
from ingest.quarantine import messages as quarantine_retention
from ingest.store import empty_offsets

Chosen = TypeVar("Chosen", Entity, journal.JournalRows)

BROKEN = (PostgresPartitioningError, DatabaseError, psycopg.Error, OSError, Complaint)


class PartitionsRun:
    """The action of one call of the command."""

    # Which days must not be dropped yet.
    holds: Holds = staticmethod(may_get_rows)

    def __init__(self, command: BaseCommand) -> None:
        self.stdout, self.stderr = command.stdout, command.stderr

    def handle(self, *_: object, **options: Any) -> None:
        self.options = options
        holds = None if options.get("force") else self.holds
        self.policy = Policy.at(clock.now(), holds)
        if options["action"] == "maintain" and options["dry_run"]:
            options["action"] = "plan"
        try:
            code = getattr(self, f"_{options['action']}")()
        except NoRunLockError as error:
            self.stderr.write(f"Nothing done: {error}.")
            code = 1
        except BrokenPipeError:
            raise  # the reader of standard output has left
        except BROKEN as error:
            plain = str(error) if isinstance(error, PostgresPartitioningError) else known(error)
            raise CommandError(plain or describe(error), returncode=2) from error
        if code:
            sys.exit(code)

    def _list(self) -> int:
        parts = catalog.read(connection, [table.name for table in journal.tables()])
        if self.options["json"]:
            self.stdout.write(json.dumps([show.partition_object(part) for part in parts]))
        else:
            if not parts and (why := schema.of_database()) is not None:
                raise CommandError(why, returncode=2)  # without the tables there are none
            print_table(self.stdout, show.partitions(parts))
            total = show.size(sum(part.bytes for part in parts))
            self.stdout.write(f"{counted(len(parts), 'partition')}, {total}.")
        return 0

    def _plan(self) -> int:
        plans = plan(self.policy, tables=journal.tables())
        lines = [line for table in plans for line in table.lines()]
        counts = {
            action: sum(line.action == action for line in lines)
            for action in ("create", "drop", "keep")
        }
        packed = packing_days.due(self.policy.today)
        if self.options["json"]:
            days = {
                "oldest": str(self.policy.window.oldest),
                "newest": str(self.policy.window.newest),
            }
            objects = [show.line_object(line) for line in lines]
            pack = [partition_name(*place) for place in packed]
            answer = {"window": days, **counts, "partitions": objects, "pack": pack}
            self.stdout.write(json.dumps(answer))
            return 0
        print_table(self.stdout, show.plan(lines, self.options["each"]))
        freed = show.size(sum(line.part.bytes for line in lines if line.action == "drop"))
        self.stdout.write(
            f"Window {self.policy.window.oldest} to {self.policy.window.newest} (UTC): "
            f"{counts['create']} to create, {counts['drop']} to drop ({freed}), "
            f"{counts['keep']} to keep."
        )
        for line in packing_days.lines(packed):
            self.stdout.write(line)
        if packed and (waits := forms.explain_wait(forms.find_unready(connection.connection))):
            self.stdout.write(_sentence(waits))
        try:
            clock.check(connection.connection)
        except clock.WrongClockError as error:
            self.stderr.write(f"`maintain` would do nothing: {error}.")
        return 0

    def _check_clock(self) -> None:
        """Retention by a wrong clock would remove what is young. Raises WrongClockError."""
        connection.ensure_connection()
        plain = connection.connection
        try:
            clock.check(plain)
        except clock.WrongClockError as error:
            outcome = Outcome()
            outcome.failed("clock", error)
            state.note(outcome, clock.of_server(plain), 0)
            raise

    def _maintain(self) -> int:
        if self.options["accept_changed"] and not self.options["why"]:
            raise CommandError("--accept-changed needs --why: the reason is kept in the journal")
        self._check_clock()
        started, begun = clock.now(), time.monotonic()

        def report(action: str, part: DayPartition, error: Exception | None) -> None:
            advance(1)
            if self.options["each"] and error is None and not self.options["json"]:
                self.stdout.write(f"{action} {part.full_name}: {part.reason}")

        url = settings.ANNALS.archive_url
        archiver = DayArchiver(Store(url)) if url else None
        # The lock also between the steps: another run would end this one halfway.
        with run_lock():
            with progress("create, archive, drop, seal, pack, days", None, sys.stderr) as advance:
                outcome = maintain(
                    self.policy, report, archiver=archiver, tables=journal.tables(),
                    check=self._check,
                )  # fmt: skip
                self._seal_due(outcome, advance)
                packing_days.pack_due(self.policy.today, outcome, advance)
            self._remove_old(outcome)
        seconds = time.monotonic() - begun
        state.note(outcome, started, seconds)
        self._summary(outcome, archiver, seconds)
        return outcome.exit_code

    def _check(self, plain: Connection, table: str, day: date) -> None:
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
            verification.check(plain, rows, day)
        except verification.SealedDayChangedError:
            if day != self.options["accept_changed"]:
                raise
            if is_packed(plain, table, day):
                raise Complaint(
                    f"{table} {day} is packed: run `partitions unpack {day}` before it is accepted"
                ) from None
            done = f"partitions maintain --accept-changed {day}"
            record(Action.OTHER, done, self.options["why"], entity=rows.name)
            verification.accept(table, day)

    def _seal_due(self, outcome: Outcome, advance: Callable[[int], None]) -> None:
        """Seal the days that are finished and settled."""
        with run_lock():
            existing = catalog.read(connection, [entity.table for entity in ENTITIES])
            after = settings.ANNALS.seal_days
            found, waiting = due(existing, self.policy.today, after, may_get_rows)
            outcome.unsealed += [(*place, why) for place, why in sorted(waiting.items())]
            try:
                journal.create_skipped(self.policy.today)
            except psycopg.Error as failed:
                outcome.failed(journal.TABLE, failed)
            days = [*found, *journal.due(self.policy.today)]
            for rows, day, error in seal_days(days):
                outcome.note_in(outcome.sealed, partition_name(rows.table, day), error)
                advance(1)
            late_rows.forget(connection.connection)

    def _remove_old(self, outcome: Outcome) -> None:
        """Remove what belongs to no kept day: search keys, and messages in quarantine."""
        plain, window = connection.connection, self.policy.window
        try:
            with run_lock():
                existing = catalog.read(connection, [entity.table for entity in ENTITIES])
                before = search_retention.oldest_searched(existing, window.oldest)
                outcome.search_keys_removed = search_retention.remove_old(plain, before)
                outcome.search_keys_before = before
                hold_days = settings.ANNALS.hold_days
                gone = quarantine_retention.remove_old(plain, window, hold_days, clock.now())
                empty_offsets.remove_old_ranges(plain, window)
        except psycopg.Error as error:
            outcome.failed("retention of search keys and quarantine", error)
        else:
            outcome.quarantine_removed = gone
        try:
            outcome.logins_removed = sessions.remove_ended(clock.now())
        except DatabaseError as error:
            outcome.failed("rows of logins that have ended", error)

    def _summary(self, outcome: Outcome, archiver: DayArchiver | None, seconds: float) -> None:
        kept = archiver.archived.values() if archiver else ()
        in_table, in_files = sum(m.table_bytes for m in kept), sum(m.file_bytes for m in kept)
        if self.options["json"]:
            archive = {"days": len(kept), "tableBytes": in_table, "fileBytes": in_files}
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
            self.stdout.write(_sentence(outcome.packing_waits))
        reasons = Counter((table, why) for table, _, why in outcome.unsealed)
        for (table, why), count in reasons.items():
            self.stdout.write(f"{table}: {counted(count, 'day')} not sealed: {why}")
        if kept:
            self.stdout.write(
                f"Archived {counted(len(kept), 'day')}: {show.size(in_table)} in tables, "
                f"{show.size(in_files)} in Parquet, ratio {in_files / in_table:.3f}."
            )
        self.stdout.write(
            f"Created {len(outcome.created)}, dropped {len(outcome.dropped)} "
            f"({show.size(outcome.freed)}), sealed {len(outcome.sealed)}, "
            f"packed {len(outcome.packed)}, "
            f"held {len(outcome.held)}, busy {len(outcome.busy)}, "
            f"broken {len(outcome.broken)}, in {seconds:.1f} s."
        )
        if outcome.dropped:
            self.stdout.write(f"The longest detach took {outcome.longest_detach:.3f} s.")
        if outcome.search_keys_removed or outcome.quarantine_removed:
            self.stdout.write(
                "Older than retention and removed: "
                f"{counted(outcome.search_keys_removed, 'search key')}, "
                f"{counted(outcome.quarantine_removed, 'message')} in quarantine."
            )

    def _restore(self) -> int:
        store, day = _store(), self.options["day"]

        def act(plain: Connection, entity: Entity) -> str:
            record(Action.OTHER, f"partitions restore {day}", entity=entity.name)
            provenance.check(plain, store, entity, day)
            done = restore(plain, store, entity, day)
            return f"Restored {entity.table} {day}: {counted(done.rows, 'row')}."

        return self._locked(act)

    def _release(self) -> int:
        day = self.options["day"]

        def act(plain: Connection, entity: Entity) -> str:
            if not release(plain, entity.table, day):
                name = partition_name(entity.table, day)
                raise ArchiveError(f"{name} was not restored from the archive")
            return f"Released {entity.table} {day}."

        return self._locked(act)

    def _forget(self) -> int:
        return self._decided(decisions.forget, "Removed {} from the archive: {}.")

    def _adopt(self) -> int:
        return self._decided(decisions.adopt, "The archived rows of {} count: {}.")

    def _decided(self, decide: Callable[[Store, str, date], int], said: str) -> int:
        store, day, why = _store(), self.options["day"], self.options["why"]

        def act(_: Connection, entity: Entity) -> str:
            done = f"partitions {self.options['action']} {day}"
            record(Action.OTHER, done, why, entity=entity.name)
            rows = decide(store, entity.table, day)
            return said.format(f"{entity.table} {day}", counted(rows, "row"))

        return self._locked(act)

    def _locked(self, act: Callable[[Connection, Entity], str]) -> int:
        """Do it for each of the chosen tables, with the lock of maintain's runs. Raises
        WrongClockError: what is finished, and what is noted, is said by a clock."""
        self._require_clock()
        with run_lock():
            return self._for_each(act, self._entities())

    def _require_clock(self) -> None:
        """Raise WrongClockError if this machine and the server do not agree on the time."""
        connection.ensure_connection()
        clock.check(connection.connection)

    def _pack(self) -> int:
        return self._locked(partial(self._rewrite, packing.pack, "Packed", day=self.options["day"]))

    def _unpack(self) -> int:
        """Unpack a day, or all. Once none is packed, earlier releases may work again."""
        day: date | None = self.options["day"]
        if (day is None) is not self.options["all"]:
            raise CommandError("Name the day, or give --all.", returncode=2)
        self._require_clock()
        code = 0
        with run_lock():
            tables = {entity.table: entity for entity in self._entities()}
            places = [(table, day) for table in tables] if day else packing_days.packed()
            for table, packed_day in places:
                if table in tables:
                    act = partial(self._rewrite, packing.unpack, "Unpacked", day=packed_day)
                    code = max(code, self._for_each(act, [tables[table]]))
            left = packing_days.packed()
            if not left:
                forms.withdraw(connection.connection)
                self.stdout.write("No day is packed: an earlier release can read every day.")
            elif not day:
                self.stdout.write(f"{counted(len(left), 'table')} of days are still packed.")
        return code

    def _rewrite(
        self,
        rewrite: Callable[..., packing.Done],
        word: str,
        plain: Connection,
        entity: Entity,
        *,
        day: date,
    ) -> str:
        """Pack or unpack a day of one table; return what was done, for people."""
        with progress(f"{entity.table} {day}, rows", None, sys.stderr) as advance:
            done = rewrite(plain, entity, day, progress=advance)
        return (
            f"{word} {entity.table} {day}: {counted(done.rows, 'row')}, "
            f"{show.size(done.before)} before, {show.size(done.after)} now."
        )

    def _repair(self) -> int:
        day = self.options["day"]

        def act(plain: Connection, entity: Entity) -> str:
            record(Action.OTHER, f"partitions repair {day}", entity=entity.name)
            done = repair(plain, entity, day)
            for key in done.differing:
                self.stdout.write(
                    f"{entity.table} {day}: {key.id} version {key.version} had two contents; the"
                    " one that a block had stays, the other one is in the table doubled_version"
                )
            count = len(done.equal) + len(done.differing)
            return (
                f"Repaired {entity.table} {day}: {counted(count, 'row')} taken out, of which"
                f" {len(done.differing)} with another content."
            )

        return self._locked(act)

    def _seal(self) -> int:
        day = self.options["day"]

        def seal_one(plain: Connection, rows: DayRows) -> str:
            verification.check(plain, rows, day)
            made = seal(plain, rows, day)
            return f"Sealed {rows.table} {day}: {counted(made.rows, 'row')}, {made.seal}"

        if self.options["entity"] != journal.NAME:
            return self._locked(seal_one)
        self._require_clock()
        with run_lock():
            return self._for_each(seal_one, [journal.ROWS])

    def _verify(self) -> int:
        name = self.options["entity"]
        if not self.options["archive"]:
            versions = [] if name == journal.NAME else self._entities()
            others = [] if name in BY_NAME else [journal.ROWS]
            return verify_tables([*versions, *others], self.options, self.stdout, self.stderr)
        chosen = BY_NAME.get(name)
        return verify_archive(_store(), chosen, self.options, self.stdout, self.stderr)

    def _for_each(self, act: Callable[[Connection, Chosen], str], chosen: Sequence[Chosen]) -> int:
        """Do it for each of the chosen tables, and report each result at once."""
        connection.ensure_connection()
        code = 0
        for each in chosen:
            try:
                self.stdout.write(act(connection.connection, each))
            except (Complaint, OSError, psycopg.Error) as error:
                if connection.connection is None or connection.connection.closed:
                    raise  # and so is the lock of the runs
                self.stderr.write(f"{each.name}: {known(error) or describe(error)}")
                code = 2
        return code

    def _entities(self) -> list[Entity]:
        name = self.options["entity"]
        return [BY_NAME[name]] if name else list(ENTITIES)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _store() -> Store:
    url = settings.ANNALS.archive_url
    if not url:
        raise ArchiveError("ANNALS_ARCHIVE_URL is not set, so there is no archive")
    return Store(url)
