"""What goes wrong: a worker, the coordinator and consumers are killed; workers join and leave."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg

from tests.citus.faults.nodes import Place
from tests.citus.faults.stand import Stand
from tests.citus.faults.watch import Watch
from tests.consuming import wait_until

# Logical replication: a shard is written while it is copied, and locked for a moment at the end.
MODE = "force_logical"
MOVE_S = 900

_REBALANCE = """
SELECT state FROM citus_rebalance_status() ORDER BY job_id DESC LIMIT 1
"""
_SHARDS = """
SELECT n.nodename, n.nodeport::int, count(*)::int
FROM pg_dist_placement p JOIN pg_dist_shard USING (shardid)
    JOIN pg_dist_node n ON n.groupid = p.groupid AND n.noderole = 'primary'
WHERE logicalrelid = 'product_instance_aud'::regclass GROUP BY 1, 2 ORDER BY 2
"""
# A commit on this node waits for a standby that does not exist: after it is written there, and
# before anybody is answered.
_HANG = "ALTER SYSTEM SET synchronous_standby_names TO 'nobody'"
_NO_HANG = "ALTER SYSTEM RESET synchronous_standby_names"


@dataclass
class Scenes:
    """seconds: how long a node stays away; times: how often something is repeated."""

    stand: Stand
    watch: Watch
    seconds: float = 10.0
    times: int = 10
    reports: list[str] = field(default_factory=list)
    chance: random.Random = field(default_factory=lambda: random.Random(16))

    def kill_worker(self) -> None:
        """A worker ends at once, and is started again."""
        worker = self.stand.nodes.list_workers()[0]
        with self._scene("a worker dies"):
            self._away(worker)

    def kill_coordinator(self) -> None:
        """The same with the coordinator."""
        with self._scene("the coordinator dies"):
            self._away(self.stand.nodes.coordinator)

    def kill_consumer(self) -> None:
        """SIGKILL, again and again, at moments of chance."""
        with self._scene("the consumer dies"):
            for _ in range(self.times):
                self.stand.wait_for_progress()
                time.sleep(self.chance.uniform(0, 1))
                self.stand.consumer.kill_process()
                self.stand.consumer = self.stand.consumers.start_consumer()
            self.stand.wait_for_progress()
            self._say(f"killed {self.times} times")

    def kill_between_prepare_and_commit(self) -> None:
        """A node is killed when workers have prepared a transaction: before the coordinator has
        written its commit, and after it."""
        nodes = self.stand.nodes
        for hanging, outcome in (
            (nodes.list_workers()[-1], "not committed"), (nodes.coordinator, "committed")
        ):  # fmt: skip
            with self._scene(f"killed between prepare and commit, {outcome}"):
                self.stand.wait_for_progress()
                nodes.set(hanging, _HANG)
                wait_until(lambda: any(nodes.count_prepared().values()), "nothing is prepared")
                time.sleep(1)
                self._kill(nodes.coordinator)
                prepared = nodes.count_prepared()
                nodes.revive(nodes.coordinator)
                self.watch.dead = None
                nodes.set(hanging, _NO_HANG)
                still, recovered = nodes.count_prepared(), nodes.recover()
                took = self.stand.wait_for_progress()
                self._say(
                    f"{sum(prepared.values())} prepared transactions were left "
                    f"{_by_place(prepared)}, {sum(still.values())} after the start; "
                    f"recover_prepared_transactions() ended {recovered}, the rest Citus' daemon; "
                    f"written again after {took:.1f} s"
                )
                assert sum(prepared.values()) > 0

    def add_and_remove_worker(self, third: Place) -> None:
        """A worker is added under load, gets shards, is emptied again and removed."""
        citus = self.stand.nodes.citus
        with self._scene("a worker joins"):
            before = self._shards()
            with _own_database(self.stand, third):
                citus.fetch_rows("SELECT citus_add_node(%s, %s)", third)
                try:
                    took = self._rebalanced()
                    after = self._shards()
                    self._say(f"{_by_place(before)} became {_by_place(after)} in {took:.0f} s")
                    assert after.get(third)
                    self.watch.locate()
                    self.watch.scene = "a worker leaves"
                    began = time.monotonic()
                    citus.fetch_rows("SELECT citus_drain_node(%s, %s, %s)", [*third, MODE])
                finally:
                    self._emptied(third)
                took = time.monotonic() - began
                self._say(f"{_by_place(self._shards())} again in {took:.0f} s")
                self.watch.locate()

    def _away(self, node: Place) -> None:
        stand = self.stand
        stand.wait_for_progress()
        self._kill(node)
        time.sleep(min(2.0, self.seconds / 2))  # what was under way ends
        first = last = None
        if node != stand.nodes.coordinator:
            first = stand.database.count_read()
        time.sleep(self.seconds)
        if node != stand.nodes.coordinator:
            last = stand.database.count_read()
            self._told(node)
        assert stand.consumer.process.poll() is None, stand.consumer.read_log()
        before = None if last is None or first is None else last - first
        prepared = stand.nodes.count_prepared()
        stand.nodes.revive(node)
        self.watch.dead = None
        recovered = stand.nodes.recover()
        took = stand.wait_for_progress()
        self._say(
            f"away {self.seconds:.0f} s; "
            + (f"{before} messages counted meanwhile; " if before is not None else "")
            + f"{sum(prepared.values())} prepared transactions on the others, "
            f"{recovered} recovered; written again {took:.1f} s after its start"
        )

    def _told(self, node: Place) -> None:
        """What an operator sees while a worker is away: the web is ready, and serves what it can;
        the consumer's log names the node."""
        ready = self.stand.web.send_request("/readyz")
        assert ready.status == 200, ready.body
        [*_, line] = [
            item for item in self.stand.consumer.read_log().splitlines() if "trying again" in item
        ]
        self._say(f"/readyz answers {ready.status}; the consumer says: {line}")
        assert str(node[1]) in line

    def _kill(self, node: Place) -> None:
        self.watch.dead = node
        self.stand.nodes.kill(node)

    def _rebalanced(self) -> float:
        began, citus = time.monotonic(), self.stand.nodes.citus
        citus.fetch_rows("SELECT citus_rebalance_start(shard_transfer_mode => %s)", [MODE])
        wait_until(lambda: self._state() in ("finished", "failed"), self._state, MOVE_S)
        assert self._state() == "finished", citus.fetch_rows(
            "SELECT * FROM citus_rebalance_status()"
        )
        return time.monotonic() - began

    def _state(self) -> str:
        rows = self.stand.nodes.citus.fetch_rows(_REBALANCE)
        return str(rows[0][0]) if rows else "none"

    def _shards(self) -> dict[Place, int]:
        return {(host, port): n for host, port, n in self.stand.nodes.citus.fetch_rows(_SHARDS)}

    def _emptied(self, third: Place) -> None:
        citus = self.stand.nodes.citus
        with psycopg.connect(citus.url, autocommit=True) as plain:
            plain.execute("CALL citus_cleanup_orphaned_resources()")
            plain.execute("SELECT citus_remove_node(%s, %s)", third)

    def _say(self, text: str) -> None:
        self.reports.append(f"{self.watch.scene}: {text}")
        print(self.reports[-1], flush=True)

    @contextmanager
    def _scene(self, name: str) -> Iterator[None]:
        """A scene under load; afterwards everything must be there, once."""
        stand, began = self.stand, time.monotonic()
        self.watch.scene = name
        with stand.feed.send_in_background(stand.rate):
            yield
        self.watch.scene = f"{name}, afterwards"
        stand.wait_until_counted()
        stand.nodes.recover()
        stand.check_whole()
        assert not any(stand.nodes.count_prepared().values())
        self._say(
            f"{stand.feed.produced.total()} messages so far are stored once; "
            f"{time.monotonic() - began:.0f} s"
        )


@contextmanager
def _own_database(stand: Stand, third: Place) -> Iterator[None]:
    """The test's database on a node that has not joined."""
    url, name = stand.nodes.get_url(third), psycopg.conninfo.conninfo_to_dict(stand.database.url)
    admin = psycopg.conninfo.make_conninfo(url, dbname="postgres")
    with psycopg.connect(admin, autocommit=True) as plain:
        plain.execute("SET citus.enable_create_database_propagation TO off")
        plain.execute(f"CREATE DATABASE {name['dbname']}")
    try:
        with psycopg.connect(url, autocommit=True) as plain:
            plain.execute("CREATE EXTENSION citus")
        yield
    finally:
        with psycopg.connect(admin, autocommit=True) as plain:
            plain.execute("SET citus.enable_create_database_propagation TO off")
            plain.execute(f"DROP DATABASE IF EXISTS {name['dbname']} WITH (FORCE)")


def _by_place(counts: dict[Place, int]) -> str:
    return "(" + ", ".join(f"{host}:{port} {n}" for (host, port), n in counts.items()) + ")"


def collect_scenes(scenes: Scenes, third: Place | None) -> dict[str, Callable[[], None]]:
    """The scenes by the name that the command line has for them."""
    scene_by_name: dict[str, Callable[[], None]] = {
        "worker": scenes.kill_worker,
        "coordinator": scenes.kill_coordinator,
        "consumer": scenes.kill_consumer,
        "prepared": scenes.kill_between_prepare_and_commit,
    }
    if third is not None:
        scene_by_name["rebalance"] = lambda: scenes.add_and_remove_worker(third)
    return scene_by_name
