"""The nodes of a cluster, which somebody else built: commands that end and start one, and what is
left on them."""

import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.citus.cluster import Citus
from tests.reaper import OUTLIVES

START_S = 60
Place = tuple[str, int]

_PREPARED = """
SELECT count(*)::int FROM pg_prepared_xacts
WHERE gid LIKE 'citus%' AND database = current_database()
"""
_PLACES = """
SELECT nodename, nodeport::int FROM pg_dist_node
WHERE noderole = 'primary' AND groupid <> 0 ORDER BY nodeport
"""


@dataclass
class Nodes:
    """stop, start: command lines for a node, with {host} and {port}; stop ends it as a crash does.
    moved: nodes whose standby has taken over, and where that is."""

    citus: Citus
    stop: str
    start: str
    moved: dict[Place, Place] = field(default_factory=dict)
    dead: set[Place] = field(default_factory=set)

    @property
    def coordinator(self) -> Place:
        return place(self.citus.url)

    def list_workers(self) -> list[Place]:
        """Of the cluster now."""
        return [(host, port) for host, port in self.citus.fetch_rows(_PLACES)]

    def get_url(self, of: Place) -> str:
        """The test's database on this node."""
        return make_conninfo(self.citus.url, host=of[0], port=of[1])

    def kill(self, node: Place) -> None:
        self.dead.add(node)
        self._run(self.stop, node)

    def revive(self, node: Place) -> None:
        """Start it; returns when it answers."""
        self._run(self.start, node)
        deadline = time.monotonic() + START_S
        while True:
            with suppress(psycopg.OperationalError), psycopg.connect(self.get_url(node)):
                self.dead.discard(node)
                return
            if time.monotonic() > deadline:
                raise AssertionError(f"{node} does not answer after its start")
            time.sleep(0.1)

    @contextmanager
    def revive_all_afterwards(self) -> Iterator[None]:
        """Start those that are still dead when the block ends."""
        try:
            yield
        finally:
            for item in list(self.dead):
                self.revive(item)

    def count_prepared(self) -> dict[Place, int]:
        """Prepared transactions on each node that runs."""
        counts = {}
        for node in self.list_places():
            with suppress(psycopg.OperationalError):
                [(counts[node],)] = self.query(node, _PREPARED)
        return counts

    def recover(self) -> int:
        """End the prepared transactions as the nodes that began them know; how many they were."""
        count = 0
        for item in self.list_places():
            with suppress(psycopg.OperationalError):
                [(ended,)] = self.query(item, "SELECT recover_prepared_transactions()")
                count += int(ended)
        return count

    def list_places(self) -> list[Place]:
        """Of the nodes that the test began with; some may be dead."""
        places = [place(url) for url in self.citus.urls]
        return [self.moved.get(item, item) for item in places]

    def query(self, node: Place, statement: str, values: Any = None) -> list[tuple[Any, ...]]:
        """The rows of a statement on a node."""
        with psycopg.connect(self.get_url(node), autocommit=True) as plain:
            return plain.execute(statement, values).fetchall()

    def set(self, node: Place, statement: str) -> None:
        """ALTER SYSTEM on a node, which may wait for a standby with each commit."""
        with psycopg.connect(self.get_url(node), autocommit=True) as plain:
            plain.execute("SET synchronous_commit TO local")
            plain.execute(statement)
            plain.execute("SELECT pg_reload_conf()")

    def _run(self, command: str, node: Place) -> None:
        words = shlex.split(command.format(host=node[0], port=node[1]))
        # What it starts may keep its output open, and goes on when tests.reaper has ended the rest.
        subprocess.run(
            words, check=True, timeout=300, env={**os.environ, OUTLIVES: "1"},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip


def place(url: str) -> Place:
    parts = conninfo_to_dict(url)
    return str(parts["host"]), int(parts["port"] or 5432)
