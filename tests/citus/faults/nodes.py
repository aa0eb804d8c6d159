"""The nodes of a cluster, which somebody else built: commands that end and start one, and what is
left on them."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.citus.cluster import Citus

START_S = 60
Place = tuple[str, int]

_PREPARED = "SELECT count(*)::int FROM pg_prepared_xacts WHERE gid LIKE 'citus%'"
_PLACES = """
SELECT nodename, nodeport::int FROM pg_dist_node
WHERE noderole = 'primary' AND groupid <> 0 ORDER BY nodeport
"""


@dataclass
class Nodes:
    """stop, start: command lines for a node, with {host} and {port}; stop ends it as a crash
    does."""

    citus: Citus
    stop: str
    start: str
    _dead: set[Place] = field(default_factory=set)

    @property
    def coordinator(self) -> Place:
        return place(self.citus.url)

    def workers(self) -> list[Place]:
        """Of the cluster now."""
        return [(host, port) for host, port in self.citus.rows(_PLACES)]

    def url(self, of: Place) -> str:
        """The test's database on this node."""
        return make_conninfo(self.citus.url, host=of[0], port=of[1])

    def kill(self, which: Place) -> None:
        self._dead.add(which)
        self._run(self.stop, which)

    def revive(self, which: Place) -> None:
        """Start it; returns when it answers."""
        self._run(self.start, which)
        deadline = time.monotonic() + START_S
        while True:
            with suppress(psycopg.OperationalError), psycopg.connect(self.url(which)):
                self._dead.discard(which)
                return
            if time.monotonic() > deadline:
                raise AssertionError(f"{which} does not answer after its start")
            time.sleep(0.1)

    @contextmanager
    def all_alive_afterwards(self) -> Iterator[None]:
        """Start those that are still dead when the block ends."""
        try:
            yield
        finally:
            for each in list(self._dead):
                self.revive(each)

    def prepared(self) -> dict[Place, int]:
        """Prepared transactions on each worker that runs."""
        found = {}
        for each in self._candidates():
            with suppress(psycopg.OperationalError), psycopg.connect(self.url(each)) as plain:
                [(found[each],)] = plain.execute(_PREPARED).fetchall()
        return found

    def recover(self) -> int:
        """End the prepared transactions as the coordinator knows; how many they were."""
        [(count,)] = self.citus.rows("SELECT recover_prepared_transactions()")
        return int(count)

    def _candidates(self) -> list[Place]:
        """Without the coordinator, which may be dead."""
        return [place(url) for url in self.citus.urls[1:]]

    def _run(self, command: str, which: Place) -> None:
        words = shlex.split(command.format(host=which[0], port=which[1]))
        # What it starts may keep its output open.
        subprocess.run(
            words, check=True, timeout=120,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip


def place(url: str) -> Place:
    parts = conninfo_to_dict(url)
    return str(parts["host"]), int(parts["port"] or 5432)
