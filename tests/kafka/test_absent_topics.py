"""An installation by docs/first-hour.md, whose brokers have the five live topics and no others."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from annals.embedded import logins
from annals.embedded.broker import Daemon
from history.entities import ENTITIES
from tests.consuming import (
    LIVE,
    OWNER_URL,
    ROOT,
    Consumers,
    Database,
    Feed,
    environment,
    send,
    until,
)
from tests.kafka import brokers
from tests.messages import NOW, TWIN, value
from tests.processes import database, server
from tests.soak.clock import FILE_VARIABLE, Clock, moved

pytestmark = pytest.mark.kafka
__all__ = ["database", "server"]
MIGRATION = [topic for entity in ENTITIES for topic in entity.topics[1:]]


@dataclass
class Installation:
    """Processes of an installation whose clock can be moved by days."""

    env: dict[str, str]
    database: Database
    clock: Clock
    folder: Path

    def run(self, *words: str, login: str = logins.OWNER) -> str:
        """Run a command, or a script, to its end. Return what it printed."""
        program = words if words[0].endswith(".py") else ("manage.py", *words)
        done = subprocess.run(
            [sys.executable, "-m", "tests.soak.moved", *program],
            cwd=ROOT, env=self._env(login), capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def consume(self) -> subprocess.Popen[bytes]:
        """Start a consumer."""
        with (self.folder / "consumer.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.soak.moved", "manage.py", "consume"],
                cwd=ROOT, env=self._env(logins.CONSUMER), stdout=log, stderr=log,
            )  # fmt: skip

    def maintain(self) -> dict[str, Any]:
        """The cron jobs of docs/first-hour.md. Return what `maintain` did."""
        did: dict[str, Any] = json.loads(self.run("partitions", "maintain", "--json"))
        self.run("gaps")
        self.run("partitions", "verify")
        self.run("quarantine", "retry", login=logins.CONSUMER)
        return did

    def look(self, *paths: str) -> dict[str, Any]:
        """What operators and clients see."""
        seen: dict[str, Any] = json.loads(
            self.run(str(Path(__file__).with_name("first_hour.py")), *paths).splitlines()[-1]
        )
        return seen

    def _env(self, login: str) -> dict[str, str]:
        return {
            **self.env,
            "DATABASE_URL": moved(self.database.url_of(login)),
            FILE_VARIABLE: str(self.clock.file),
            "PYTHONPATH": str(ROOT),
        }


@pytest.fixture
def installation(broker: Daemon, database: Database, tmp_path: Path) -> Iterator[Installation]:
    """The five live topics, tables, and a running consumer."""
    brokers.create(broker, LIVE, partitions=1)
    env = {**environment(broker, database), "ANNALS_RETENTION_DAYS": "30", "ANNALS_LANGUAGE": "en"}
    env.pop(OWNER_URL)
    made = Installation(env, database, Clock(tmp_path / "clock", database.url), tmp_path)
    made.run("partitions", "maintain")
    consumer = made.consume()
    yield made
    consumer.terminate()
    consumer.wait(30)


def asked(database: Database, absent: bool) -> set[str]:
    rows = database.query("SELECT topic FROM ingest_asked_topic WHERE absent = %s", absent)
    return {row["topic"] for row in rows}


def test_a_run_until_idle_notes_which_topics_do_not_exist(
    broker: Daemon, database: Database, tmp_path: Path
) -> None:
    """Also those that this run does not read. Nobody asks before the next run."""
    brokers.create(broker, LIVE)
    consumers = Consumers(environment(broker, database), tmp_path)
    try:
        consumers.drain("--topics", ",".join(LIVE[:2]))
        assert asked(database, absent=True) == set(MIGRATION)
        brokers.create(broker, MIGRATION)
        consumers.drain()
        assert asked(database, absent=True) == set()
    finally:
        consumers.stop()


@pytest.mark.one_broker
def test_a_new_installation_with_the_live_topics_is_green_and_packs_its_days(
    installation: Installation, broker: Daemon, database: Database
) -> None:
    feed = Feed(broker.client(), documents=10)
    feed.send(60)
    until(lambda: database.total() == 60, "not stored")
    until(lambda: asked(database, absent=True) == set(MIGRATION), "nobody asked")
    installation.maintain()
    seen = installation.look("history/product-instance/d0", "completeness")
    assert seen["findings"] == []
    assert "All is well" in seen["page"]
    assert "W117" not in str(seen["warnings"])
    assert "annals.I117" in seen["infos"]
    timeline, store = seen["answers"]
    assert (store["neverRead"], store["completeness"]["lagMessages"]) == ([], 0)
    assert {each["topic"] for each in store["absent"]} == set(MIGRATION)
    fresh = datetime.fromisoformat(timeline["completeness"]["completeTo"])
    assert datetime.now(UTC) - fresh < timedelta(minutes=5)

    for _ in range(5):
        installation.clock.next_day()
    since = installation.clock.now()
    until(
        lambda: database.query(
            "SELECT min(asked_at) > %s AS seen FROM ingest_asked_topic", since
        ) == [{"seen": True}],
        "nobody asked again",
    )  # fmt: skip
    did = installation.maintain()
    assert (did["unsealed"], did["packing_waits"], did["broken"]) == ([], "", [])
    day = str(NOW.date())
    assert did["sealed"]
    assert len(did["packed"]) == len(ENTITIES)
    seen = installation.look()
    assert (seen["findings"], seen["packed"]) == ([], [day])
    assert database.stored() == feed.produced

    # The migration begins after all: what it brings for the packed day is not lost.
    brokers.create(broker, MIGRATION, partitions=1)
    send(broker.client(), (TWIN, value(id="old", version=3, updatedAt=NOW.isoformat()), "old"))
    until(lambda: asked(database, absent=True) == set(), "nobody saw that they exist")
    until(lambda: database.total() == 61, "the late version is not stored", seconds=120)
    seen = installation.look("history/product-instance/old", "completeness")
    assert [each["version"] for each in seen["answers"][0]["history"]] == [3]
    assert seen["answers"][1]["absent"] == []
    assert installation.run("partitions", "verify")
