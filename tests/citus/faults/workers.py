"""Scenes of the fault test about workers: under load, a worker fails and nothing may be lost.

A worker dies in the middle of a commit, the worker to which the consumer is connected dies, and a
standby replaces a worker.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg

from tests.citus.faults.nodes import Address, Nodes
from tests.citus.faults.scenes import Scenes
from tests.citus.faults.standby import follow_node
from tests.consuming import wait_until

# Citus commits or rolls back prepared transactions once a minute (citus.recover_2pc_interval).
DECIDED_S = 150
CAUGHT_S = 120
# A consumer begins to read at most this long after its start.
JOINS_S = 12

_GIDS = """
SELECT gid FROM pg_prepared_xacts WHERE database = current_database() AND starts_with(gid, %s)
"""
_GROUP = "SELECT groupid FROM pg_dist_node WHERE nodename = %s AND nodeport = %s"
_COMMITTED = "SELECT count(*)::int FROM pg_dist_transaction WHERE gid = ANY(%s)"
_MOVE = """
SELECT citus_update_node(nodeid, %s, %s) FROM pg_dist_node WHERE nodename = %s AND nodeport = %s
"""


@dataclass
class WorkerScenes(Scenes):
    """The scenes of class Scenes, and three more scenes in which a worker dies or is replaced.

    A scene makes a fault under load, and then checks that no message is lost or stored twice.
    """

    last: ExitStack = field(default_factory=ExitStack)  # cleans up after the last scene

    def kill_in_a_commit(self) -> None:
        """Kill a worker in the middle of a commit.

        The session of the coordinator is frozen when the worker has prepared a transaction. Then
        the worker is killed, and the session continues.
        """
        nodes = self.stand.nodes
        worker = nodes.list_workers()[0]
        with self._run_scene("a worker dies in a commit"):
            self.stand.wait_for_progress()
            with _freeze_in_commit(nodes, nodes.coordinator, node=worker) as gids:
                self._kill(worker)
            time.sleep(self.seconds)
            [(committed,)] = nodes.citus.fetch_rows(_COMMITTED, [gids])
            nodes.revive(worker)
            self.watch.dead, began = None, time.monotonic()
            wait_until(
                lambda: not _has_prepared(nodes, worker, gids),
                f"{gids} are still prepared",
                DECIDED_S,
            )
            decided = time.monotonic() - began
            took = self.stand.wait_for_progress()
            self._report(
                f"{len(gids)} prepared transactions were left on it, {committed} of them committed "
                f"by the coordinator; Citus decided them {decided:.0f} s after its start; "
                f"written again after {took:.1f} s more"
            )

    def connect_consumer_to_worker(self) -> None:
        """Connect the consumer to a worker, and kill the nodes of the cluster one by one.

        The consumer's worker is killed twice: in the middle of a commit, and at an arbitrary
        moment. Then a second worker is killed, and last the coordinator.
        """
        stand, nodes = self.stand, self.stand.nodes
        own_worker, other_worker = nodes.list_workers()[:2]
        with self._run_scene("the consumer is connected to a worker"):
            stand.consumer.terminate(30)
            stand.consumer = stand.consumers.start_consumer(DATABASE_URL=nodes.get_url(own_worker))
            self._kill_in_commit_of_consumer(own_worker)
            for node, name in (
                (own_worker, "its worker"),
                (other_worker, "another one"),
                (nodes.coordinator, "the coordinator"),
            ):
                self.watch.scene = f"the consumer is connected to a worker, {name} dies"
                self._kill_for_a_while(node)
            stand.consumer.terminate(30)
            stand.consumer = stand.consumers.start_consumer()
            stand.wait_for_progress()

    def _kill_in_commit_of_consumer(self, node: Address) -> None:
        """Kill `node`, the worker to which the consumer is connected, in the middle of a commit.

        The transaction of this consumer stays prepared on the coordinator and locks rows of the
        ledger, so a second consumer, connected to the coordinator, cannot write.
        """
        stand, nodes = self.stand, self.stand.nodes
        stand.wait_for_progress()
        with _freeze_in_commit(nodes, node, node=nodes.coordinator) as gids:
            self._kill(node)
        stand.consumer.terminate(60)
        stand.consumer = stand.consumers.start_consumer()
        before = stand.database.count_read()
        time.sleep(JOINS_S + self.seconds)
        counted = stand.database.count_read() - before
        nodes.revive(node)
        self.watch.dead, began = None, time.monotonic()
        wait_until(
            lambda: not _has_prepared(nodes, nodes.coordinator, gids),
            f"{gids} are still prepared",
            DECIDED_S,
        )
        decided = time.monotonic() - began
        took = stand.wait_for_progress()
        self._report(
            f"its worker died in a commit and left {len(gids)} prepared transactions on the "
            f"coordinator; {counted} messages counted meanwhile by a consumer on the coordinator; "
            f"Citus decided them {decided:.0f} s after its start; written again after "
            f"{took:.1f} s more"
        )
        stand.consumer.terminate(30)
        stand.consumer = stand.consumers.start_consumer(DATABASE_URL=nodes.get_url(node))

    def promote_standby(self) -> None:
        """Kill a worker, and promote its synchronous standby."""
        nodes = self.stand.nodes
        worker = nodes.list_workers()[0]
        with self._run_scene("a standby takes over from a worker"):
            standby = self.last.enter_context(follow_node(nodes, worker))
            self.stand.wait_for_progress()
            self._kill(worker)
            time.sleep(min(2.0, self.seconds))
            began = time.monotonic()
            standby.promote()
            promoted = time.monotonic() - began
            nodes.citus.fetch_rows(_MOVE, [*standby.address, *worker])
            nodes.moved[worker] = standby.address
            recovered = nodes.recover_prepared()
            self.watch.dead = None
            self.watch.locate_shards()
            self.stand.wait_for_progress()
            self._report(
                f"promoted in {promoted:.1f} s; {recovered} prepared transactions recovered; "
                f"written again {time.monotonic() - began:.1f} s after the promotion began"
            )


@contextmanager
def _freeze_in_commit(nodes: Nodes, origin: Address, node: Address) -> Iterator[list[str]]:
    """Freeze a session of the node `origin` in the middle of a commit until the `with` block ends.

    During the block, `node` has prepared the transaction and `origin` has not committed it. Yields
    the gids of the prepared transactions.
    """
    deadline = time.monotonic() + CAUGHT_S
    prefix = _make_gid_prefix(nodes, origin)
    with psycopg.connect(nodes.get_url(node), autocommit=True) as plain:
        while time.monotonic() < deadline:
            for pid in set(map(_get_process_id, _list_gids(plain, prefix))):
                os.kill(pid, signal.SIGSTOP)
                try:
                    if stopped_gids := [
                        gid for gid in _list_gids(plain, prefix) if _get_process_id(gid) == pid
                    ]:
                        yield stopped_gids
                        return
                finally:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)
    raise AssertionError("no transaction was seen between prepare and commit")


def _has_prepared(nodes: Nodes, node: Address, gids: list[str]) -> bool:
    with psycopg.connect(nodes.get_url(node), autocommit=True) as plain:
        return bool({*_list_gids(plain, "citus_")} & {*gids})


def _make_gid_prefix(nodes: Nodes, origin: Address) -> str:
    """Return the prefix of the gids of all prepared transactions that `origin` started.

    A gid of Citus is citus_GROUP_PROCESS_TRANSACTION_CONNECTION. GROUP is the group of `origin`.
    """
    [(group,)] = nodes.citus.fetch_rows(_GROUP, origin)
    return f"citus_{group}_"


def _get_process_id(gid: str) -> int:
    return int(gid.split("_")[2])


def _list_gids(plain: psycopg.Connection[Any], prefix: str) -> list[str]:
    return [gid for (gid,) in plain.execute(_GIDS, [prefix])]


def collect_worker_scenes(scenes: WorkerScenes) -> dict[str, Callable[[], None]]:
    """Return the methods that WorkerScenes adds to Scenes, by the names that `--scene` accepts."""
    return {
        "commit": scenes.kill_in_a_commit,
        "on-worker": scenes.connect_consumer_to_worker,
        "standby": scenes.promote_standby,
    }
