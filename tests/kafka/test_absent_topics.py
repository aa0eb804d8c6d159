"""Annals works as docs/first-hour.md describes, even if the brokers have no migration topics."""

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
from annals.embedded.broker import KafkaServer
from history.kinds.entities import ENTITIES
from tests.consuming import (
    LIVE_TOPICS,
    OWNER_URL,
    ROOT,
    ConsumerStarter,
    MessageFeed,
    ProductDatabase,
    make_environment,
    produce_messages,
    wait_until,
)
from tests.kafka import brokers
from tests.messages import NOW, TWIN_TOPIC, make_value
from tests.processes import database, server
from tests.soak.clock import FILE_VARIABLE, MovedClock, build_moved_url

pytestmark = pytest.mark.kafka
__all__ = ["database", "server"]
MIGRATION = [topic for entity in ENTITIES for topic in entity.topics[1:]]


@dataclass
class SmallInstallation:
    """An installation of Annals with a clock that tests can move ahead by days."""

    env: dict[str, str]
    database: ProductDatabase
    clock: MovedClock
    folder: Path

    def run(self, *words: str, login: str = logins.OWNER) -> str:
        """Run a command or a script to its end, and return its output."""
        program = words if words[0].endswith(".py") else ("manage.py", *words)
        process = subprocess.run(
            [sys.executable, "-m", "tests.soak.moved", *program],
            cwd=ROOT,
            env=self._make_env(login),
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert process.returncode == 0, f"{words}: {process.stdout}{process.stderr}"
        return process.stdout

    def start_consumer(self) -> subprocess.Popen[bytes]:
        with (self.folder / "consumer.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.soak.moved", "manage.py", "consume"],
                cwd=ROOT,
                env=self._make_env(logins.CONSUMER),
                stdout=log,
                stderr=log,
            )

    def run_cron_jobs(self) -> dict[str, Any]:
        """Run the cron jobs of docs/first-hour.md, and return the JSON output of `maintain`."""
        result: dict[str, Any] = json.loads(self.run("partitions", "maintain", "--json"))
        self.run("gaps")
        self.run("partitions", "verify")
        self.run("quarantine", "retry", login=logins.CONSUMER)
        return result

    def collect_reports(self, *paths: str) -> dict[str, Any]:
        """Run first_hour.py, and return the reports and the API answers that it prints.

        Args:
            paths: The API paths below /api/v1/ that first_hour.py requests.
        """
        seen: dict[str, Any] = json.loads(
            self.run(str(Path(__file__).with_name("first_hour.py")), *paths).splitlines()[-1]
        )
        return seen

    def _make_env(self, login: str) -> dict[str, str]:
        return {
            **self.env,
            "DATABASE_URL": build_moved_url(self.database.build_url(login)),
            FILE_VARIABLE: str(self.clock.file),
            "PYTHONPATH": str(ROOT),
        }


@pytest.fixture
def installation(
    broker: KafkaServer, database: ProductDatabase, tmp_path: Path
) -> Iterator[SmallInstallation]:
    """Create the five live topics and the tables, and run a consumer during the test."""
    brokers.create_topics(broker, LIVE_TOPICS, partitions=1)
    env = {
        **make_environment(broker, database),
        "ANNALS_RETENTION_DAYS": "20",
        "ANNALS_LANGUAGE": "en",
    }
    env.pop(OWNER_URL)
    installation = SmallInstallation(
        env, database, MovedClock(tmp_path / "clock", database.url), tmp_path
    )
    installation.run("partitions", "maintain")
    consumer = installation.start_consumer()
    yield installation
    consumer.terminate()
    consumer.wait(120)


def find_absent_topics(database: ProductDatabase, absent: bool) -> set[str]:
    rows = database.query("SELECT topic FROM ingest_asked_topic WHERE absent = %s", absent)
    return {row["topic"] for row in rows}


def wait_until_all_topics_are_seen(database: ProductDatabase, since: datetime) -> None:
    """Wait until the consumer has checked all topics after `since`.

    The consumer asks the brokers for each absent topic, and for the end offset of each existing
    topic. Until then `partitions maintain` does not drop days.
    """
    wait_until(
        lambda: (
            database.query(
                "SELECT (SELECT min(asked_at) FROM ingest_asked_topic) > %s"
                " AND (SELECT min(end_known_at) FROM ingest_ledger) > %s AS seen",
                since,
                since,
            )
            == [{"seen": True}]
        ),
        "the consumer did not report all topics",
    )


def test_run_until_idle_records_topics_that_do_not_exist(
    broker: KafkaServer, database: ProductDatabase, tmp_path: Path
) -> None:
    """The run also records absent topics that are not in `--topics`, because no consumer asks the
    brokers about these topics before the next run."""
    brokers.create_topics(broker, LIVE_TOPICS)
    consumers = ConsumerStarter(make_environment(broker, database), tmp_path)
    try:
        consumers.consume_to_end("--topics", ",".join(LIVE_TOPICS[:2]))
        assert find_absent_topics(database, absent=True) == set(MIGRATION)
        brokers.create_topics(broker, MIGRATION)
        consumers.consume_to_end()
        assert find_absent_topics(database, absent=True) == set()
    finally:
        consumers.kill_all()


@pytest.mark.one_broker
def test_new_installation_reports_no_problem_when_migration_topics_do_not_exist(
    installation: SmallInstallation, broker: KafkaServer, database: ProductDatabase
) -> None:
    """Finished days are packed all the same."""
    feed = MessageFeed(broker.make_client_config(), documents=10)
    feed.send_many(60)
    wait_until(lambda: database.count_stored_versions() == 60, "not stored")
    wait_until(lambda: find_absent_topics(database, absent=True) == set(MIGRATION), "nobody asked")
    installation.run_cron_jobs()
    seen = installation.collect_reports("history/product-instance/d0", "completeness")
    assert seen["findings"] == []
    assert "All is well" in seen["page"]
    assert "W117" not in str(seen["warnings"])
    assert "annals.I117" in seen["infos"]
    timeline, store = seen["answers"]
    assert (store["neverRead"], store["completeness"]["lagMessages"]) == ([], 0)
    assert {item["topic"] for item in store["absent"]} == set(MIGRATION)
    fresh = datetime.fromisoformat(timeline["completeness"]["completeTo"])
    assert datetime.now(UTC) - fresh < timedelta(minutes=5)

    for _ in range(5):
        installation.clock.move_to_next_day()
    wait_until_all_topics_are_seen(database, since=installation.clock.get_now())
    result = installation.run_cron_jobs()
    assert (result["unsealed"], result["packing_waits"], result["broken"]) == ([], "", [])
    day = str(NOW.date())
    assert result["sealed"]
    assert len(result["packed"]) == len(ENTITIES)
    seen = installation.collect_reports()
    assert (seen["findings"], seen["packed"]) == ([], [day])
    assert database.count_stored() == feed.produced

    # The migration begins later. Its versions of the packed day are not lost.
    brokers.create_topics(broker, MIGRATION, partitions=1)
    produce_messages(
        broker.make_client_config(),
        (TWIN_TOPIC, make_value(id="old", version=3, updatedAt=NOW.isoformat()), "old"),
    )
    wait_until(
        lambda: find_absent_topics(database, absent=True) == set(), "nobody saw that they exist"
    )
    wait_until(
        lambda: database.count_stored_versions() == 61,
        "the late version is not stored",
        seconds=120,
    )
    seen = installation.collect_reports("history/product-instance/old", "completeness")
    assert [item["version"] for item in seen["answers"][0]["history"]] == [3]
    assert seen["answers"][1]["absent"] == []
    assert installation.run("partitions", "verify")
