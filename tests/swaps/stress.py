"""Packs and unpacks two days again and again, while further threads read and write these days.

The test keeps a list of the versions that it sent. An answer is wrong if it has a version twice, or
if it lacks a version that was stored before the request. A command is allowed to fail because a
transaction uses the day.

On a cluster, packing leaves a day unchanged if rows change meanwhile. So on a cluster, the test has
a lock that is held during each swap and each write. Readers do not take this lock.
"""

import io
import json
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Final

import psycopg
from django.core.management import call_command
from django.db import connection
from psycopg import errors
from psycopg.conninfo import make_conninfo

from annals.embedded import postgres
from history import timeline
from history.kinds.entities import ROOT
from history.retention import packing
from history.retention.seals import verification
from history.retention.seals.seal import seal_day
from history.store import distribution
from history.store.days import days
from history.store.days.canonical import Connection, stream_versions
from history.timeline import TimelineQuery
from tests.consuming import wait_until
from tests.db.ingested import Ingested, read_counts
from tests.db.partitioned import connect_plainly
from tests.db.store import HOST
from tests.messages import NOW, SOURCE, make_value

Key = tuple[str, int]

NOON: Final = NOW.replace(hour=12, minute=0, second=0)
# The consumer writes to the first day, which is sealed. The owner of the tables writes to the
# second day.
SEALED: Final = NOON - timedelta(days=20)
OPEN: Final = NOON - timedelta(days=22)
DOCUMENTS: Final = 200
VERSIONS: Final = 5
SEAL_EVERY: Final = 10  # swaps
# How many rows one writer can write while an answer is counted.
IN_FLIGHT: Final = 1


@dataclass
class SwapStress:
    """One run of swaps, readers and writers."""

    ingested: Ingested
    sent: dict[date, set[Key]] = field(default_factory=dict)  # committed versions by day
    wrong: list[str] = field(default_factory=list)  # a sentence for each wrong answer
    act_counts: Counter[str] = field(default_factory=Counter)  # how often each act was done
    stop: threading.Event = field(default_factory=threading.Event)
    is_distributed: bool = False  # whether the tables are on the nodes of a cluster
    turn: threading.Lock = field(default_factory=threading.Lock)

    def run(self, swaps: int) -> None:
        """Swap the table of each day `swaps` times. Afterwards `wrong` lists all wrong answers."""
        self._fill()
        acts = (self._ingest, self._write_sql, self._read, self._verify, self._export, self._dump)
        threads = [threading.Thread(target=self._repeat, args=[act]) for act in acts]
        for thread in threads:
            thread.start()
        try:
            with connect_plainly() as plain:
                for number in range(swaps):
                    rewrite = packing.unpack_day if number % 2 else packing.pack_day
                    for moment in (SEALED, OPEN):
                        self._swap(plain, rewrite, moment.date())
                    if number % SEAL_EVERY == 0:
                        self._retry_while_busy(lambda: seal_day(plain, ROOT, SEALED.date()))
        finally:
            self.stop.set()
            for thread in threads:
                thread.join(120)
        self._compare()

    def _fill(self) -> None:
        with connect_plainly() as plain:
            self.is_distributed = distribution.is_distributed_table(plain, ROOT.table)
            for moment in (SEALED, OPEN):
                days.create_partition(plain, ROOT.table, moment.date())
                self.sent[moment.date()] = set()
            for number in range(DOCUMENTS):
                for version in range(VERSIONS):
                    self._insert(plain, f"b{number}", version)
        keys = [
            (f"a{number}", version) for number in range(DOCUMENTS) for version in range(VERSIONS)
        ]
        self.ingested.write(*(self._make_message(*key) for key in keys))
        self.sent[SEALED.date()].update(keys)
        with connect_plainly() as plain:
            seal_day(plain, ROOT, SEALED.date())

    def _swap(self, plain: Connection, rewrite: Callable[..., object], day: date) -> None:
        self._retry_while_busy(lambda: rewrite(plain, ROOT, day))
        self.act_counts[rewrite.__name__] += 1
        if self.is_distributed:
            self._wait_for_writers()

    def _wait_for_writers(self) -> None:
        """Wait until each writer thread has written once more.

        Without this wait, the swaps could get the lock `turn` every time, and a writer never.
        """
        ingested, written = self.act_counts["ingest"], self.act_counts["write_sql"]
        wait_until(
            lambda: (
                self.wrong
                or (self.act_counts["ingest"] > ingested and self.act_counts["write_sql"] > written)
            ),
            "a writer does not write",
        )

    @contextmanager
    def _take_turn(self) -> Iterator[None]:
        """Hold the lock `turn` until the `with` block ends. On a single server, do nothing.

        On a cluster, this lock prevents threads from writing rows during a swap.
        """
        if not self.is_distributed:
            yield
            return
        with self.turn:
            yield

    def _retry_while_busy(self, act: Callable[[], object]) -> None:
        """Call `act`. Repeat this while a transaction (of pg_dump, for example) locks the table.

        Raises:
            LockNotAvailable: The table was still locked after five minutes.
        """
        until = time.monotonic() + 300
        while True:
            try:
                with self._take_turn():
                    act()
            except errors.LockNotAvailable:
                self.act_counts["busy"] += 1
                if time.monotonic() > until:
                    raise
            else:
                return

    def _repeat(self, act: Callable[[], None]) -> None:
        name = act.__name__.strip("_")
        try:
            while not self.stop.is_set() and not self.wrong:
                act()
                self.act_counts[name] += 1
        except Exception as error:
            self.wrong.append(f"{name}: {type(error).__name__}: {error}")
        finally:
            connection.close()

    def _make_message(self, id: str, version: int) -> bytes:
        moment = (SEALED + timedelta(seconds=version)).replace(tzinfo=None).isoformat()
        return make_value(id=id, version=version, updatedAt=moment, data={"id": id, "n": version})

    def _ingest(self) -> None:
        """Store a batch with a new and a repeated version, in the same way as a consumer."""
        key = f"n{self.act_counts['ingest']:06}", 0
        again = f"a{self.act_counts['ingest'] % DOCUMENTS}", self.act_counts["ingest"] % VERSIONS
        batch = self.ingested.make_batch(self._make_message(*key), self._make_message(*again))
        while True:
            try:
                with self._take_turn():
                    result = self.ingested.store(batch)
                break
            except psycopg.OperationalError:  # a consumer reconnects and retries in this case
                self.ingested.writer.close()
        if (result.stored[SOURCE], result.repeated[SOURCE]) != (1, 1):
            self.wrong.append(f"the consumer stored {result.stored} and repeated {result.repeated}")
        self.sent[SEALED.date()].add(key)

    def _insert(self, plain: Connection, id: str, version: int) -> None:
        plain.execute(
            f"INSERT INTO {ROOT.table} (id, version, data, updated_at, client_id, type)"
            " VALUES (%s, %s, %s, %s, 'sql', 1)",
            [
                id,
                version,
                json.dumps({"id": id, "n": version}),
                OPEN + timedelta(seconds=version),
            ],
        )
        self.sent[OPEN.date()].add((id, version))

    def _write_sql(self) -> None:
        """Insert a new version with SQL.

        On a single server, also check that PostgreSQL refuses to insert a stored version again.
        """
        with connect_plainly() as plain:
            number = self.act_counts["write_sql"]
            with self._take_turn():
                self._insert(plain, f"s{number:06}", 0)
            if self.is_distributed:
                return  # a cluster has no trigger that refuses a version of a block
            try:
                self._insert(plain, f"b{number % DOCUMENTS}", number % VERSIONS)
            except errors.UniqueViolation:
                return
        self.wrong.append("a version that is stored was stored again")

    def _read(self) -> None:
        number = self.act_counts["read"] % DOCUMENTS
        for letter in "ab":
            page = timeline.fetch_page(HOST, TimelineQuery(entity=ROOT, id=f"{letter}{number}"))
            versions = [(version.version, version.data["n"]) for version in page.versions]
            if versions != [(version, version) for version in reversed(range(VERSIONS))]:
                self.wrong.append(f"the timeline of {letter}{number} has {versions}")

    def _verify(self) -> None:
        with connect_plainly() as plain:
            for verdict in verification.verify_days(plain, ROOT, SEALED.date()):
                if verdict.fault and "rows of this day keep coming" in verdict.fault:
                    self.act_counts["busy"] += 1  # only a cluster says this
                elif verdict.fault:
                    self.wrong.append(f"verify: {verdict.fault}")

    def _export(self) -> None:
        for moment in (SEALED, OPEN):
            day, before = moment.date(), set(self.sent[moment.date()])
            with tempfile.TemporaryDirectory() as folder:
                call_command(
                    "export",
                    "--entity",
                    ROOT.name,
                    "--from",
                    str(day),
                    "--to",
                    str(day + timedelta(days=1)),
                    "--format",
                    "jsonl",
                    "--output",
                    folder,
                    "--unmasked",
                    "a test",
                    stdout=io.StringIO(),
                    stderr=io.StringIO(),
                )
                [file] = [path for path in Path(folder).iterdir() if path.name[0] != "."]
                rows = map(json.loads, file.read_text().splitlines())
                keys = [(row["id"], row["version"]) for row in rows]
            self._check_keys(f"the export of {day}", keys, before)

    def _check_keys(self, subject: str, keys: list[Key], before: set[Key]) -> None:
        """Report a fault if `keys` has a key twice, or lacks a key of `before`.

        Args:
            subject: The name of the answer that has the keys, for the report.
            before: The keys that were sent before the answer was requested.
        """
        if len(set(keys)) != len(keys):
            self.wrong.append(f"{subject} has a version twice")
        if missing := before - set(keys):
            self.wrong.append(
                f"{subject} lacks {len(missing)} of {len(before)}: {sorted(missing)[:3]}"
            )

    def _dump(self) -> None:
        """Run pg_dump, and check how many versions its output has.

        pg_dump takes its PostgreSQL snapshot before it locks the tables. So pg_dump is allowed to
        fail if a table is swapped, but the output must not be incomplete.
        """
        settings_dict = connection.settings_dict
        names = ("host", "port", "user", "password")
        url = make_conninfo(
            dbname=settings_dict["NAME"],
            **{name: str(settings_dict[name.upper()]) for name in names},
        )
        before = sum(map(len, self.sent.values()))
        finished = subprocess.run(
            [
                postgres.find_programs() / "pg_dump",
                "--data-only",
                f"--table=public.{ROOT.table}*",
                url,
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        after = sum(map(len, self.sent.values())) + 2 * IN_FLIGHT
        if finished.returncode:
            self.act_counts["pg_dump that failed"] += 1
            return
        count = sum(_count_versions_in_dump(finished.stdout))
        if not before <= count <= after:
            self.wrong.append(f"pg_dump has {count} versions of {before} to {after}")

    def _compare(self) -> None:
        """Check that the tables have exactly the sent versions, and that the ledger counts them."""
        with connect_plainly() as plain:
            for day, sent in self.sent.items():
                place = days.locate_day(plain, ROOT.table, day)
                rows = stream_versions(plain, ROOT, place.child)
                keys = [(row[0], row[1]) for row in rows]
                self._check_keys(f"the day {day}", keys, sent)
                if more := set(keys) - sent:
                    self.wrong.append(f"the day {day} has {sorted(more)[:3]}, which nobody sent")
        ledger = read_counts()
        stored, repeated = len(self.sent[SEALED.date()]), self.act_counts["ingest"]
        if (ledger["stored"], ledger.get("repeated", 0)) != (stored, repeated):
            self.wrong.append(f"the ledger says {ledger}, not {stored} stored, {repeated} repeated")


def _count_versions_in_dump(text: str) -> list[int]:
    """Return how many versions each row of a dump has."""
    counts, place = [], None
    for line in text.splitlines():
        if line.startswith("COPY public."):
            columns = line[line.index("(") + 1 : line.index(")")].split(", ")
            place = columns.index("keys") if "keys" in columns else None
        elif line == "\\.":
            place = None
        elif place is not None:
            keys = line.split("\t")[place]
            # The text begins with \\x and has two digits for each byte. A block has eight bytes for
            # each version except the newest.
            counts.append(1 if keys == "\\N" else (len(keys) - 3) // 16 + 1)
    return counts
