"""The example program in docs/api.md keeps a copy equal to the store, including late versions."""

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import NamedTuple
from urllib.parse import quote

import psycopg
import pytest
from pytest_django.fixtures import transactional_db
from pytest_django.live_server_helper import LiveServer

from history.completeness import complete_to
from history.completeness.complete_to import StoreCompleteness
from history.kinds.entities import ENTITIES, get_root
from history.retention.packing import pack_day, unpack_day
from history.store.days.window import Window
from ingest.messages.message import TopicPartition
from ingest.store import ledger
from ingest.store.session import open_connection
from ingest.store.transaction import BatchWriter
from tests.db.ingested import (
    CHILD_SOURCE,
    SOURCES,
    Ingested,
    claim_all,
    empty_ingest_tables,
    query,
    retry_quarantined,
)
from tests.db.partitioned import connect_plainly
from tests.db.store import T0
from tests.db.test_api_docs import FEED
from tests.messages import WINDOW, make_value

# The program calls a server. The threads of the server see only committed rows.
__all__ = ["transactional_db"]

START = T0.replace(hour=0)
ROUNDS = 120
ROUND = timedelta(days=1) / ROUNDS


class SimulatedVersion(NamedTuple):
    """A version that a writer stores on the simulated day.

    The moment of the version can be long before the simulated time at which the version is stored.
    """

    id: str
    version: int
    moment: datetime
    is_late_by_quarantine: bool  # its message goes to quarantine, and is stored by a later retry

    def encode(self, source: TopicPartition) -> bytes:
        return make_value(
            id=self.id,
            version=self.version,
            updatedAt=self.moment.replace(tzinfo=None).isoformat(),
            data={"number": self.version},
            **({"productInstanceId": "A"} if source == CHILD_SOURCE else {}),
        )


def simulate_day(random: Random, prefix: str) -> list[list[SimulatedVersion]]:
    """Return the versions that one writer stores on the simulated day.

    A quarter of the versions are stored minutes to hours after their moments.

    Returns:
        For each of the ROUNDS rounds of the day, the versions that the writer stores in this round.
    """
    rounds: list[list[SimulatedVersion]] = [[] for _ in range(ROUNDS)]
    for document in range(12):
        moment = START + random.uniform(0, 0.3) * timedelta(days=1)
        for version in range(random.randrange(4, 30)):
            moment += random.choice([0, 1, 60, 1_800, 7_200]) * timedelta(seconds=1)
            if moment.date() != START.date():
                break
            lateness = random.choice([0, 0, 0, random.expovariate(1 / 4_000)])
            number = (moment - START + timedelta(seconds=lateness)) // ROUND
            is_bad = random.random() < 0.05
            rounds[min(number, ROUNDS - 1)].append(
                SimulatedVersion(f"{prefix}{document}", version, moment, is_bad)
            )
    return rounds


class Simulation:
    """A simulated day on which three concurrent writers store versions.

    The simulated clock moves in ROUNDS steps, the rounds. The store reports that it is complete up
    to this clock, which does not wait for the writers. So more versions are late than those that
    the test stores late on purpose.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []
        self.round = 0
        self.kills: Counter[str] = Counter()

    def start(self) -> None:
        claims = claim_all()
        for number, source in enumerate(SOURCES):
            writer = Ingested(BatchWriter(open_connection), {source: claims[source]})
            rounds = simulate_day(self._random, f"{'ABC'[number]}-")
            self._start_thread(self._write, writer, source, rounds, Random(number))
        self._start_thread(self._retry)

    def _start_thread(self, *call: object) -> None:
        thread = threading.Thread(target=self._note_errors, args=call)
        thread.start()
        self._threads.append(thread)

    def _note_errors(self, run: object, *values: object) -> None:
        try:
            run(*values)  # type: ignore[operator]
        except BaseException as error:
            self._errors.append(error)

    @property
    def is_over(self) -> bool:
        return self._errors != [] or not any(thread.is_alive() for thread in self._threads)

    def join(self) -> None:
        for thread in self._threads:
            thread.join()
        assert self._errors == []

    def read_completeness(self, known: StoreCompleteness) -> StoreCompleteness:
        return replace(known, complete_to=START + self.round * ROUND)

    def _write(
        self,
        writer: Ingested,
        source: TopicPartition,
        rounds: list[list[SimulatedVersion]],
        random: Random,
    ) -> None:
        """Write two batches in each round of the day: first valid, then bad messages.

        A message goes to quarantine if the window of the batch ends before the day of the version.
        """
        narrow = Window(WINDOW.oldest, (START - timedelta(days=1)).date())
        for number, versions in enumerate(rounds):
            while self.round < number:
                time.sleep(0.01)
            random.shuffle(versions)
            for is_bad, window in ((False, WINDOW), (True, narrow)):
                bodies = [
                    version.encode(source)
                    for version in versions
                    if version.is_late_by_quarantine is is_bad
                ]
                while bodies and not self._write_or_be_killed(
                    writer, source, bodies, window, random
                ):
                    pass
        writer.writer.close()

    def _write_or_be_killed(
        self,
        writer: Ingested,
        source: TopicPartition,
        bodies: list[bytes],
        window: Window,
        random: Random,
    ) -> bool:
        """Write a batch, or lose the connection during the write. Return whether the batch is
        stored.

        After a kill the next consumer continues at the offset of the ledger.
        """
        before = writer.next[source]
        killer = threading.Timer(random.uniform(0, 0.02), writer.writer.break_connection)
        if random.random() < 0.2:
            killer.start()
        try:
            writer.write(*bodies, source=source, window=window)
        except (psycopg.OperationalError, psycopg.InterfaceError):
            self.kills["writer"] += 1
        else:
            return True
        finally:
            killer.cancel()
            if killer.ident is not None:
                killer.join()
        writer.writer.close()
        with open_connection() as plain:
            claim = ledger.claim_partition(plain, source, 0)
        writer.claims[source], writer.next[source] = claim, claim.next_offset
        return claim.next_offset != before

    def _retry(self) -> None:
        """Retry quarantined messages until the simulated day is over. At noon, pack the day."""
        is_packed = False
        with open_connection() as plain:
            while self.round < ROUNDS:
                retry_quarantined(plain, lambda: WINDOW)
                time.sleep(0.1)
                if not is_packed and self.round > ROUNDS // 2:
                    with connect_plainly() as owner:
                        pack_day(owner, get_root(), START.date())
                    is_packed = True
            retry_quarantined(plain, lambda: WINDOW)


@pytest.fixture
def served_address(live_server: LiveServer) -> Iterator[str]:
    empty_ingest_tables()
    yield f"{live_server.url}/api/v1"
    empty_ingest_tables()


def run_program(address: str, copy: Path, most_files: int | None = None) -> bool:
    """Run the example program in docs/api.md. Return whether the program ended without a kill.

    Args:
        most_files: Kill the program when it has written this many files. None: do not kill it.
    """
    environment = {**os.environ, "API": address, "COPY": str(copy)}
    command = [sys.executable, "-c", FEED]
    files_before = count_files(copy)
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        while most_files is not None and process.poll() is None:
            if count_files(copy) - files_before >= most_files:
                process.kill()
                return False
            time.sleep(0.005)
        _, errors = process.communicate()
    assert process.returncode == 0, errors
    return True


def count_files(copy: Path) -> int:
    return len(list(copy.iterdir())) if copy.exists() else 0


def read_copy(copy: Path) -> dict[str, object]:
    """Return the snapshots in the files of the copy, by file name."""
    return {
        file.name: json.loads(file.read_text())["entity"]
        for file in copy.iterdir()
        if file.name not in ("token", "next")
    }


def read_store() -> dict[str, object]:
    """Unpack the day, and return all snapshots in the tables.

    The keys are the names of the files in which the example program in docs/api.md stores the
    snapshots.
    """
    with connect_plainly() as owner:
        unpack_day(owner, get_root(), START.date())
    return {
        quote(f"{entity.name} {row['id']} {row['version']} {row['moment']}", safe=" "): row["data"]
        for entity in ENTITIES
        for row in query(
            "SELECT id, version, data, to_char(updated_at AT TIME ZONE 'UTC',"
            f" 'YYYY-MM-DD\"T\"HH24:MI:SS.US') || '+00:00' AS moment FROM {entity.table}"
        )
    }


def test_documented_program_keeps_a_copy_equal_to_the_store(
    served_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers that are killed again and again store the changes of a day, a quarter of them late.
    The program is also killed and restarted. At the end, the copy equals the store."""
    simulation, most_files = Simulation(7), itertools.cycle([1, 1, 20, None])
    known = complete_to.read_completeness(ENTITIES)
    monkeypatch.setattr(
        complete_to, "read_completeness", lambda _: simulation.read_completeness(known)
    )
    copy = tmp_path / "copy"
    simulation.start()
    sizes = []
    while simulation.round < ROUNDS:
        program = threading.Thread(
            target=lambda: simulation.kills.update(
                {"program": not run_program(served_address, copy, next(most_files))}
            )
        )
        program.start()
        while program.is_alive() and simulation.round < ROUNDS:
            simulation.round += 1
            time.sleep(0.2)
        program.join()
        sizes.append(count_files(copy))
    simulation.join()
    late = query("SELECT coalesce(sum(cardinality(ids)), 0) AS count FROM late_batch")[0]["count"]
    assert run_program(served_address, copy)
    stored = read_store()
    assert simulation.kills["writer"]
    assert simulation.kills["program"]
    assert sizes[0] < len(stored)
    assert len(stored) > 200
    assert late > 20
    assert read_copy(copy) == stored
