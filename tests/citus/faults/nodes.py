"""The nodes of an existing cluster: kills and starts them, and looks for prepared transactions."""

import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.citus.cluster import Citus
from tests.consuming import wait_until
from tests.reaper import OUTLIVES

START_S = 60
Address = tuple[str, int]  # host and port

_PREPARED = """
SELECT count(*)::int FROM pg_prepared_xacts
WHERE gid LIKE 'citus%' AND database = current_database()
"""
_WAITS_FOR_STANDBY = """
SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event = 'SyncRep'
"""
_WORKERS = """
SELECT nodename, nodeport::int FROM pg_dist_node
WHERE noderole = 'primary' AND groupid <> 0 ORDER BY nodeport
"""


@dataclass
class Nodes:
    """The nodes of one cluster. Each is named by its address."""

    citus: Citus
    # Command lines with {host} and {port}. `stop` ends a node as a crash does.
    stop: str
    start: str
    # For each node that was replaced by its standby, the address of the standby.
    moved: dict[Address, Address] = field(default_factory=dict)
    dead: set[Address] = field(default_factory=set)

    @property
    def coordinator(self) -> Address:
        return parse_address(self.citus.url)

    def list_workers(self) -> list[Address]:
        """Return the workers that the cluster has now."""
        return [(host, port) for host, port in self.citus.fetch_rows(_WORKERS)]

    def get_url(self, node: Address) -> str:
        """Return the URL of the test's database on a node."""
        return make_conninfo(self.citus.url, host=node[0], port=node[1])

    def kill(self, node: Address) -> None:
        self.dead.add(node)
        self._run(self.stop, node)

    def revive(self, node: Address) -> None:
        """Start a node, and wait until it answers."""
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
        """Start the nodes that are still dead when the block ends."""
        try:
            yield
        finally:
            for item in list(self.dead):
                self.revive(item)

    def count_prepared(self) -> dict[Address, int]:
        """Count the prepared transactions on each node that runs."""
        counts = {}
        for node in self.list_addresses():
            with suppress(psycopg.OperationalError):
                [(counts[node],)] = self.query(node, _PREPARED)
        return counts

    def recover_prepared(self) -> int:
        """Let Citus commit or roll back the prepared transactions, and return their number."""
        count = 0
        for item in self.list_addresses():
            with suppress(psycopg.OperationalError):
                [(ended,)] = self.query(item, "SELECT recover_prepared_transactions()")
                count += int(ended)
        return count

    def list_addresses(self) -> list[Address]:
        """Return an address for each node that the test began with. Some nodes may be dead.

        It is the address of the node's standby if the standby has replaced the node.
        """
        addresses = [parse_address(url) for url in self.citus.urls]
        return [self.moved.get(address, address) for address in addresses]

    def query(self, node: Address, statement: str, values: Any = None) -> list[tuple[Any, ...]]:
        """Return the rows of a statement on a node."""
        with psycopg.connect(self.get_url(node), autocommit=True) as plain:
            return plain.execute(statement, values).fetchall()

    def alter_system(self, node: Address, statement: str) -> None:
        """Run ALTER SYSTEM on a node, even if each commit there waits for a standby."""
        with psycopg.connect(self.get_url(node), autocommit=True) as plain:
            plain.execute("SET synchronous_commit TO local")
            plain.execute(statement)
            plain.execute("SELECT pg_reload_conf()")

    def make_commits_hang(self, node: Address) -> None:
        """Let each commit on a node wait for a standby that does not exist, from now on.

        The commit is written on the node, but the session gets no answer. PostgreSQL reads the
        setting a moment after it was changed: this method returns when a commit really waits.
        """
        self.alter_system(node, "ALTER SYSTEM SET synchronous_standby_names TO 'nobody'")
        with (
            psycopg.connect(self.get_url(node), autocommit=True) as probe,
            psycopg.connect(self.get_url(node), autocommit=True) as watcher,
        ):
            wait_until(lambda: _is_commit_waiting(probe, watcher), f"commits on {node} do not wait")

    def let_commits_return(self, node: Address) -> None:
        """Undo `make_commits_hang`."""
        self.alter_system(node, "ALTER SYSTEM RESET synchronous_standby_names")

    def _run(self, command: str, node: Address) -> None:
        words = shlex.split(command.format(host=node[0], port=node[1]))
        # A node that the command starts would keep an output pipe open. OUTLIVES tells
        # tests.reaper to let the node run when the tests end.
        subprocess.run(
            words,
            check=True,
            timeout=300,
            env={**os.environ, OUTLIVES: "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def _is_commit_waiting(probe: psycopg.Connection[Any], watcher: psycopg.Connection[Any]) -> bool:
    """Commit a transaction on `probe`, and return whether the commit waits for a standby.

    A commit that waits is cancelled. `watcher` is a second connection to the same node.
    """
    with ThreadPoolExecutor(max_workers=1) as pool:
        commit = pool.submit(probe.execute, "SELECT pg_logical_emit_message(true, 'probe', '')")
        while not commit.done():
            if watcher.execute(_WAITS_FOR_STANDBY, [probe.info.backend_pid]).fetchone():
                probe.cancel_safe()
                return True
            time.sleep(0.01)
    return False


def parse_address(url: str) -> Address:
    parts = conninfo_to_dict(url)
    return str(parts["host"]), int(parts["port"] or 5432)
