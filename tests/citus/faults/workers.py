"""More that goes wrong with workers: one dies in the middle of a commit, the one that the consumer
is connected to dies, and one is replaced by its standby."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg

from tests.citus.faults.nodes import Nodes, Place
from tests.citus.faults.scenes import Scenes
from tests.citus.faults.standby import follow_node
from tests.consuming import wait_until

# Citus decides prepared transactions once a minute (citus.recover_2pc_interval).
DECIDED_S = 150
CAUGHT_S = 120
# A consumer that starts reads after this time at the latest.
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
    """last: what is done when all scenes are over."""

    last: ExitStack = field(default_factory=ExitStack)

    def kill_in_a_commit(self) -> None:
        """The session of the coordinator is stopped when a worker has prepared its part; then the
        worker is killed, and the session goes on."""
        nodes = self.stand.nodes
        worker = nodes.list_workers()[0]
        with self._scene("a worker dies in a commit"):
            self.stand.wait_for_progress()
            with _stopped_in_a_commit(nodes, nodes.coordinator, node=worker) as gids:
                self._kill(worker)
            time.sleep(self.seconds)
            [(committed,)] = nodes.citus.fetch_rows(_COMMITTED, [gids])
            nodes.revive(worker)
            self.watch.dead, began = None, time.monotonic()
            wait_until(
                lambda: not _left(nodes, worker, gids), f"{gids} are still prepared", DECIDED_S
            )
            decided = time.monotonic() - began
            took = self.stand.wait_for_progress()
            self._say(
                f"{len(gids)} prepared transactions were left on it, {committed} of them committed "
                f"by the coordinator; Citus decided them {decided:.0f} s after its start; "
                f"written again after {took:.1f} s more"
            )

    def connect_consumer_to_worker(self) -> None:
        """The consumer is connected to a worker: this one dies in a commit, and again; then
        another, then the coordinator."""
        stand, nodes = self.stand, self.stand.nodes
        own_worker, other_worker = nodes.list_workers()[:2]
        with self._scene("the consumer is connected to a worker"):
            stand.consumer.terminate(30)
            stand.consumer = stand.consumers.start_consumer(DATABASE_URL=nodes.get_url(own_worker))
            self._begins_a_commit_and_dies(own_worker)
            for node, name in (
                (own_worker, "its worker"),
                (other_worker, "another one"),
                (nodes.coordinator, "the coordinator"),
            ):
                self.watch.scene = f"the consumer is connected to a worker, {name} dies"
                self._away(node)
            stand.consumer.terminate(30)
            stand.consumer = stand.consumers.start_consumer()
            stand.wait_for_progress()

    def _begins_a_commit_and_dies(self, node: Place) -> None:
        """What it had prepared on the coordinator locks the ledger, for other consumers too."""
        stand, nodes = self.stand, self.stand.nodes
        stand.wait_for_progress()
        with _stopped_in_a_commit(nodes, node, node=nodes.coordinator) as gids:
            self._kill(node)
        stand.consumer.terminate(60)
        stand.consumer = stand.consumers.start_consumer()
        before = stand.database.count_read()
        time.sleep(JOINS_S + self.seconds)
        counted = stand.database.count_read() - before
        nodes.revive(node)
        self.watch.dead, began = None, time.monotonic()
        wait_until(
            lambda: not _left(nodes, nodes.coordinator, gids),
            f"{gids} are still prepared",
            DECIDED_S,
        )
        decided = time.monotonic() - began
        took = stand.wait_for_progress()
        self._say(
            f"its worker died in a commit and left {len(gids)} prepared transactions on the "
            f"coordinator; {counted} messages counted meanwhile by a consumer on the coordinator; "
            f"Citus decided them {decided:.0f} s after its start; written again after "
            f"{took:.1f} s more"
        )
        stand.consumer.terminate(30)
        stand.consumer = stand.consumers.start_consumer(DATABASE_URL=nodes.get_url(node))

    def promote_standby(self) -> None:
        """A worker is killed, and its synchronous standby promoted."""
        nodes = self.stand.nodes
        worker = nodes.list_workers()[0]
        with self._scene("a standby takes over from a worker"):
            standby = self.last.enter_context(follow_node(nodes, worker))
            self.stand.wait_for_progress()
            self._kill(worker)
            time.sleep(min(2.0, self.seconds))
            began = time.monotonic()
            standby.promote()
            promoted = time.monotonic() - began
            nodes.citus.fetch_rows(_MOVE, [*standby.place, *worker])
            nodes.moved[worker] = standby.place
            recovered = nodes.recover()
            self.watch.dead = None
            self.watch.locate()
            self.stand.wait_for_progress()
            self._say(
                f"promoted in {promoted:.1f} s; {recovered} prepared transactions recovered; "
                f"written again {time.monotonic() - began:.1f} s after the promotion began"
            )


@contextmanager
def _stopped_in_a_commit(nodes: Nodes, origin: Place, node: Place) -> Iterator[list[str]]:
    """A session of one node stands still while another one has prepared what it began. Gives the
    names of the prepared transactions."""
    deadline = time.monotonic() + CAUGHT_S
    prefix = _prefix(nodes, origin)
    with psycopg.connect(nodes.get_url(node), autocommit=True) as plain:
        while time.monotonic() < deadline:
            for pid in set(map(_process, _gids(plain, prefix))):
                os.kill(pid, signal.SIGSTOP)
                try:
                    if stopped_gids := [
                        gid for gid in _gids(plain, prefix) if _process(gid) == pid
                    ]:
                        yield stopped_gids
                        return
                finally:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)
    raise AssertionError("no transaction was seen between prepare and commit")


def _left(nodes: Nodes, node: Place, gids: list[str]) -> bool:
    with psycopg.connect(nodes.get_url(node), autocommit=True) as plain:
        return bool({*_gids(plain, "citus_")} & {*gids})


def _prefix(nodes: Nodes, begun: Place) -> str:
    """citus_GROUP_PROCESS_TRANSACTION_CONNECTION is the name of a prepared transaction."""
    [(group,)] = nodes.citus.fetch_rows(_GROUP, begun)
    return f"citus_{group}_"


def _process(gid: str) -> int:
    return int(gid.split("_")[2])


def _gids(plain: psycopg.Connection[Any], prefix: str) -> list[str]:
    return [gid for (gid,) in plain.execute(_GIDS, [prefix])]


def collect_worker_scenes(scenes: WorkerScenes) -> dict[str, Callable[[], None]]:
    """These scenes by the name that the command line has for them."""
    return {
        "commit": scenes.kill_in_a_commit,
        "on-worker": scenes.connect_consumer_to_worker,
        "standby": scenes.promote_standby,
    }
