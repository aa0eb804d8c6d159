"""The stand of the fault test: a distributed database, a broker, a consumer and a web server."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from annals.embedded.broker import EmbeddedBroker
from annals.embedded.postgres import EmbeddedPostgres
from history.kinds.entities import BY_TOPIC, ENTITIES
from history.store.days import days
from tests.attack.web import AttackedWeb, run_gunicorn
from tests.citus.cluster import Citus, create_database
from tests.citus.faults.nodes import Nodes
from tests.command_shapes import parse_shaped
from tests.consuming import (
    LIVE_TOPICS,
    ConsumerProcess,
    ConsumerStarter,
    MessageFeed,
    ProductDatabase,
    make_environment,
    run_command,
    wait_until,
)
from tests.kafka import brokers
from tests.messages import NOW

DOCUMENTS = 200
PARTITIONS = 3
DRAIN_S = 180

_SHOWN = """
SELECT id, data->>'number' AS value, (max(updated_at) AT TIME ZONE 'UTC')::date AS day
FROM product_instance_aud WHERE data ? 'number' GROUP BY 1, 2
"""
_KEYS = "SELECT id, value, day FROM search_key WHERE name = 'number'"


class ClusterDatabase(ProductDatabase):
    """The distributed database, through its coordinator. All processes use one superuser."""

    def build_url(self, login: str) -> str:  # noqa: ARG002 - one login for all processes
        return self.url

    def list_unfindable(self) -> list[dict[str, Any]]:
        """Return the business keys that the search index lacks or has with a wrong day.

        Two queries, because Citus joins distributed tables only by the distribution column.
        """
        have = {tuple(row.values()) for row in self.query(_KEYS)}
        return [row for row in self.query(_SHOWN) if tuple(row.values()) not in have]


@dataclass
class ClusterStand:
    """The database and the processes of one run of the fault test."""

    nodes: Nodes
    database: ClusterDatabase
    consumers: ConsumerStarter
    feed: MessageFeed
    web: AttackedWeb
    consumer: ConsumerProcess
    rate: float  # messages a second while a scene runs

    def wait_until_counted(self, seconds: float = DRAIN_S) -> None:
        """Wait until the ledger has counted everything that was produced."""
        self.feed.wait_for_delivery()
        wait_until(
            lambda: self.database.count_read() == self.feed.produced.total(),
            lambda: (
                f"{self.database.count_read()} of {self.feed.produced.total()} are counted:\n"
                + self.consumer.read_log()[-3000:]
            ),
            seconds,
        )

    def wait_for_progress(self, seconds: float = DRAIN_S) -> float:
        """Wait until the ledger counts more messages, and return how many seconds that took."""
        began, before = time.monotonic(), self.database.count_read()
        wait_until(lambda: self.database.count_read() > before, self.consumer.read_log, seconds)
        return time.monotonic() - began

    def check_completeness(self) -> None:
        """Assert that every produced version is stored once, and that the ledger has no lag."""
        assert self.database.count_stored() == self.feed.produced
        assert self.database.list_unfindable() == []
        assert self.database.list_quarantined() == []
        finished = self.consumers.run_command("ledger", "--json")
        assert finished.returncode == 0, finished.stdout + finished.stderr
        assert parse_shaped("ledger", finished.stdout)["totals"]["lag"] == 0

    def find_gaps(self) -> list[str]:
        """Return a sentence for each version gap in the store, or the error of `annals gaps`."""
        finished = self.consumers.run_command("gaps", "--json")
        if finished.returncode != 0:
            return [f"annals gaps: {finished.stderr.strip()}"]
        listed = self.database.query("SELECT * FROM version_gap")
        return [f"annals gaps: {gap}" for gap in listed]


@contextmanager
def start_stand(
    folder: Path, dsn: str, stop: str, start: str, shards: int, rate: float
) -> Iterator[ClusterStand]:
    """Start a broker and the processes of Annals for a Citus cluster, and yield the stand.

    Args:
        dsn: The address of the cluster's coordinator.
        stop: The command that kills a node. See `Nodes`.
        start: The command that starts a node.
        shards: The number of shards of each table.
    """
    broker = EmbeddedBroker(folder / "broker")
    broker.start()
    try:
        brokers.create_topics(broker, [t for entity in ENTITIES for t in entity.topics], PARTITIONS)
        with create_database(dsn) as citus:
            nodes = Nodes(citus, stop, start)
            with nodes.revive_all_afterwards():
                database = ClusterDatabase(EmbeddedPostgres(folder / "postgres"), "", citus.url)
                env = make_environment(broker, database) | {
                    "ANNALS_DEMO": "true",
                    "TMPDIR": str(folder),
                }
                _distribute(env, citus, shards)
                consumers = ConsumerStarter(env, folder)
                with run_gunicorn(env, folder) as web:
                    try:
                        running = consumers.start_consumer()
                        running.wait_until_reading()
                        feed = MessageFeed(broker.make_client_config(), DOCUMENTS)
                        yield ClusterStand(nodes, database, consumers, feed, web, running, rate)
                    finally:
                        consumers.kill_all()
    finally:
        broker.kill()


def list_paths() -> dict[str, tuple[str, str]]:
    """Return the address of the timeline of each document, with the document's table and id.

    To answer, the API reads only the shard to which the id belongs. Timelines of applications with
    their children are left out, because they need all shards.
    """
    tables_by_path = {}
    for number in range(DOCUMENTS):
        entity, id = BY_TOPIC[LIVE_TOPICS[number % len(LIVE_TOPICS)]], f"d{number}"
        tables_by_path[f"/api/v1/history/{entity.name}/{id}?pageSize=3"] = (entity.table, id)
    return tables_by_path


def _distribute(env: dict[str, str], citus: Citus, shards: int) -> None:
    _run_command(env, "migrate", "--verbosity", "0")
    plain = citus.connect()
    for entity in ENTITIES:
        for number in (-1, 0, 1):
            days.create_partition(plain, entity.table, NOW.date() + timedelta(days=number))
    _run_command(env, "distribute", "--shards", str(shards))


def _run_command(env: dict[str, str], *words: str) -> None:
    finished = run_command(env, *words)
    assert finished.returncode == 0, finished.stdout + finished.stderr
