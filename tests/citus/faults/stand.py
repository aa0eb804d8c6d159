"""What runs on the cluster: a database that is distributed, a broker, consumers and the web."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from annals.embedded.broker import Broker
from annals.embedded.postgres import Postgres
from history.daily import days
from history.entities import BY_TOPIC, ENTITIES
from tests.attack.web import Web, gunicorn
from tests.citus.cluster import Citus, database
from tests.citus.faults.nodes import Nodes
from tests.consuming import (
    LIVE,
    Consumers,
    Database,
    Feed,
    Running,
    command,
    environment,
    until,
)
from tests.kafka import brokers
from tests.messages import NOW
from tests.shape import shaped

DOCUMENTS = 200
PARTITIONS = 3
DRAIN_S = 180

_SHOWN = """
SELECT id, data->>'number' AS value, (max(updated_at) AT TIME ZONE 'UTC')::date AS day
FROM product_instance_aud WHERE data ? 'number' GROUP BY 1, 2
"""
_KEYS = "SELECT id, value, day FROM search_key WHERE name = 'number'"


class Spread(Database):
    """The database of the cluster, as its coordinator has it. Every process is its superuser."""

    def url_of(self, login: str) -> str:  # noqa: ARG002 - one for all
        return self.url

    def unfindable(self) -> list[dict[str, Any]]:
        """As Database has it. Two questions: Citus refuses one that joins by other columns."""
        have = {tuple(row.values()) for row in self.query(_KEYS)}
        return [row for row in self.query(_SHOWN) if tuple(row.values()) not in have]


@dataclass
class Stand:
    """rate: messages a second while a scene runs."""

    nodes: Nodes
    database: Spread
    consumers: Consumers
    feed: Feed
    web: Web
    consumer: Running
    rate: float

    def written(self, seconds: float = DRAIN_S) -> None:
        """Wait until the ledger has counted everything that was produced."""
        self.feed.flush()
        until(
            lambda: self.database.read() == self.feed.produced.total(),
            lambda: (
                f"{self.database.read()} of {self.feed.produced.total()} are counted:\n"
                + self.consumer.said()[-3000:]
            ),
            seconds,
        )

    def progress(self, seconds: float = DRAIN_S) -> float:
        """Wait until the ledger moves; how many seconds that took."""
        began, before = time.monotonic(), self.database.read()
        until(lambda: self.database.read() > before, self.consumer.said, seconds)
        return time.monotonic() - began

    def whole(self) -> None:
        """Everything that was produced is stored once, and the ledger says so."""
        assert self.database.stored() == self.feed.produced
        assert self.database.unfindable() == []
        assert self.database.quarantined() == []
        done = self.consumers.manage("ledger", "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        assert shaped("ledger", done.stdout)["totals"]["lag"] == 0

    def gaps(self) -> list[str]:
        """What `annals gaps` finds, or why it ended; nothing if all is well."""
        done = self.consumers.manage("gaps", "--json")
        if done.returncode != 0:
            return [f"annals gaps: {done.stderr.strip()}"]
        listed = self.database.query("SELECT * FROM version_gap")
        return [f"annals gaps: {gap}" for gap in listed]


@contextmanager
def standing(
    folder: Path, dsn: str, stop: str, start: str, shards: int, rate: float
) -> Iterator[Stand]:
    """dsn: of the coordinator; stop, start: as Nodes has them."""
    broker = Broker(folder / "broker")
    broker.start()
    try:
        brokers.create(broker, [t for entity in ENTITIES for t in entity.topics], PARTITIONS)
        with database(dsn) as citus:
            nodes = Nodes(citus, stop, start)
            with nodes.all_alive_afterwards():
                spread = Spread(Postgres(folder / "postgres"), "", citus.url)
                env = environment(broker, spread) | {
                    "ANNALS_DEMO": "true",
                    "TMPDIR": str(folder),
                }
                _distribute(env, citus, shards)
                consumers = Consumers(env, folder)
                with gunicorn(env, folder) as web:
                    try:
                        running = consumers.start()
                        running.until_reading()
                        feed = Feed(broker.client(), DOCUMENTS)
                        yield Stand(nodes, spread, consumers, feed, web, running, rate)
                    finally:
                        consumers.stop()
    finally:
        broker.kill()


def paths() -> dict[str, tuple[str, str]]:
    """Addresses of the API for what the feed makes, and the table and the id whose shard has what
    the answer needs. An application's page needs all shards."""
    found = {}
    for number in range(DOCUMENTS):
        entity, one = BY_TOPIC[LIVE[number % len(LIVE)]], f"d{number}"
        found[f"/api/v1/history/{entity.name}/{one}?pageSize=3"] = (entity.table, one)
    return found


def _distribute(env: dict[str, str], citus: Citus, shards: int) -> None:
    _manage(env, "migrate", "--verbosity", "0")
    plain = citus.raw()
    for entity in ENTITIES:
        for number in (-1, 0, 1):
            days.create(plain, entity.table, NOW.date() + timedelta(days=number))
    _manage(env, "distribute", "--shards", str(shards))


def _manage(env: dict[str, str], *words: str) -> None:
    done = command(env, *words)
    assert done.returncode == 0, done.stdout + done.stderr
