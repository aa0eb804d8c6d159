"""Scenes of the fault test. Each makes a fault under load, and checks that nothing is lost.

A worker, the coordinator or a consumer is killed, or a worker joins and leaves.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg

from tests.citus.faults.nodes import Address
from tests.citus.faults.stand import ClusterStand
from tests.citus.faults.watch import ApiWatcher
from tests.consuming import wait_until

# With logical replication a shard accepts writes while it is copied, except for a moment at the
# end.
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


@dataclass
class Scenes:
    """The scenes of one run of the fault test. Each public method runs one scene.

    A scene makes a fault under load, and then checks that no message is lost or stored twice.
    """

    stand: ClusterStand
    watch: ApiWatcher
    seconds: float = 10.0  # how long a node stays dead
    times: int = 10  # how often the consumer is killed
    reports: list[str] = field(default_factory=list)
    chance: random.Random = field(default_factory=lambda: random.Random(16))

    def kill_worker(self) -> None:
        """Kill a worker, and start it again."""
        worker = self.stand.nodes.list_workers()[0]
        with self._run_scene("a worker dies"):
            self._kill_for_a_while(worker)

    def kill_coordinator(self) -> None:
        """Kill the coordinator, and start it again."""
        with self._run_scene("the coordinator dies"):
            self._kill_for_a_while(self.stand.nodes.coordinator)

    def kill_consumer(self) -> None:
        """Kill the consumer `times` times at random moments. Start a new one after each kill."""
        with self._run_scene("the consumer dies"):
            for _ in range(self.times):
                self.stand.wait_for_progress()
                time.sleep(self.chance.uniform(0, 1))
                self.stand.consumer.kill_process()
                self.stand.consumer = self.stand.consumers.start_consumer()
            self.stand.wait_for_progress()
            self._report(f"killed {self.times} times")

    def kill_between_prepare_and_commit(self) -> None:
        """Kill the coordinator twice while workers have a prepared transaction.

        The first kill comes before the coordinator has written the commit, the second kill after.
        """
        nodes = self.stand.nodes
        for hanging, outcome in (
            (nodes.list_workers()[-1], "not committed"),
            (nodes.coordinator, "committed"),
        ):
            with self._run_scene(f"killed between prepare and commit, {outcome}"):
                self.stand.wait_for_progress()
                nodes.make_commits_hang(hanging)
                wait_until(lambda: any(nodes.count_prepared().values()), "nothing is prepared")
                time.sleep(1)
                self._kill(nodes.coordinator)
                prepared = nodes.count_prepared()
                nodes.revive(nodes.coordinator)
                self.watch.dead = None
                nodes.let_commits_return(hanging)
                still, recovered = nodes.count_prepared(), nodes.recover_prepared()
                took = self.stand.wait_for_progress()
                self._report(
                    f"{sum(prepared.values())} prepared transactions were left "
                    f"{_format_counts(prepared)}, {sum(still.values())} after the start; "
                    f"recover_prepared_transactions() ended {recovered}, the rest Citus' daemon; "
                    f"written again after {took:.1f} s"
                )
                assert sum(prepared.values()) > 0

    def add_and_remove_worker(self, third: Address) -> None:
        """Add a worker under load, move shards to it, move them away again, and remove it."""
        citus = self.stand.nodes.citus
        with self._run_scene("a worker joins"):
            before = self._count_shards()
            with _create_database(self.stand, third):
                citus.fetch_rows("SELECT citus_add_node(%s, %s)", third)
                try:
                    took = self._rebalance()
                    after = self._count_shards()
                    self._report(
                        f"{_format_counts(before)} became {_format_counts(after)} in {took:.0f} s"
                    )
                    assert after.get(third)
                    self.watch.locate_shards()
                    self.watch.scene = "a worker leaves"
                    began = time.monotonic()
                    citus.fetch_rows("SELECT citus_drain_node(%s, %s, %s)", [*third, MODE])
                finally:
                    self._remove_worker(third)
                took = time.monotonic() - began
                self._report(f"{_format_counts(self._count_shards())} again in {took:.0f} s")
                self.watch.locate_shards()

    def _kill_for_a_while(self, node: Address) -> None:
        stand = self.stand
        stand.wait_for_progress()
        self._kill(node)
        time.sleep(min(2.0, self.seconds / 2))  # transactions that had begun end
        first = last = None
        if node != stand.nodes.coordinator:
            first = stand.database.count_read()
        time.sleep(self.seconds)
        if node != stand.nodes.coordinator:
            last = stand.database.count_read()
            self._check_messages_to_operator(node)
        assert stand.consumer.process.poll() is None, stand.consumer.read_log()
        before = None if last is None or first is None else last - first
        prepared = stand.nodes.count_prepared()
        stand.nodes.revive(node)
        self.watch.dead = None
        recovered = stand.nodes.recover_prepared()
        took = stand.wait_for_progress()
        self._report(
            f"away {self.seconds:.0f} s; "
            + (f"{before} messages counted meanwhile; " if before is not None else "")
            + f"{sum(prepared.values())} prepared transactions on the others, "
            f"{recovered} recovered; written again {took:.1f} s after its start"
        )

    def _check_messages_to_operator(self, node: Address) -> None:
        """Assert what an operator sees while a worker is dead.

        The web is ready, and the log of the consumer names the node.
        """
        ready = self.stand.web.send_request("/readyz")
        assert ready.status == 200, ready.body
        [*_, line] = [
            item for item in self.stand.consumer.read_log().splitlines() if "trying again" in item
        ]
        self._report(f"/readyz answers {ready.status}; the consumer says: {line}")
        assert str(node[1]) in line

    def _kill(self, node: Address) -> None:
        self.watch.dead = node
        self.stand.nodes.kill(node)

    def _rebalance(self) -> float:
        began, citus = time.monotonic(), self.stand.nodes.citus
        citus.fetch_rows("SELECT citus_rebalance_start(shard_transfer_mode => %s)", [MODE])
        wait_until(
            lambda: self._get_rebalance_state() in ("finished", "failed"),
            self._get_rebalance_state,
            MOVE_S,
        )
        assert self._get_rebalance_state() == "finished", citus.fetch_rows(
            "SELECT * FROM citus_rebalance_status()"
        )
        return time.monotonic() - began

    def _get_rebalance_state(self) -> str:
        rows = self.stand.nodes.citus.fetch_rows(_REBALANCE)
        return str(rows[0][0]) if rows else "none"

    def _count_shards(self) -> dict[Address, int]:
        return {(host, port): n for host, port, n in self.stand.nodes.citus.fetch_rows(_SHARDS)}

    def _remove_worker(self, third: Address) -> None:
        citus = self.stand.nodes.citus
        with psycopg.connect(citus.url, autocommit=True) as plain:
            plain.execute("CALL citus_cleanup_orphaned_resources()")
            plain.execute("SELECT citus_remove_node(%s, %s)", third)

    def _report(self, text: str) -> None:
        self.reports.append(f"{self.watch.scene}: {text}")
        print(self.reports[-1], flush=True)

    @contextmanager
    def _run_scene(self, name: str) -> Iterator[None]:
        """Send messages during the `with` block, then assert that each message is stored once."""
        stand, began = self.stand, time.monotonic()
        self.watch.scene = name
        with stand.feed.send_in_background(stand.rate):
            yield
        self.watch.scene = f"{name}, afterwards"
        stand.wait_until_counted()
        stand.nodes.recover_prepared()
        stand.check_completeness()
        assert not any(stand.nodes.count_prepared().values())
        self._report(
            f"{stand.feed.produced.total()} messages so far are stored once; "
            f"{time.monotonic() - began:.0f} s"
        )


@contextmanager
def _create_database(stand: ClusterStand, third: Address) -> Iterator[None]:
    """Create the test's database on a node outside the cluster. Drop it after the `with` block."""
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


def _format_counts(counts: dict[Address, int]) -> str:
    return "(" + ", ".join(f"{host}:{port} {n}" for (host, port), n in counts.items()) + ")"


def collect_scenes(scenes: Scenes, third: Address | None) -> dict[str, Callable[[], None]]:
    """Return the methods that run a scene, by the names that the option `--scene` accepts."""
    scene_by_name: dict[str, Callable[[], None]] = {
        "worker": scenes.kill_worker,
        "coordinator": scenes.kill_coordinator,
        "consumer": scenes.kill_consumer,
        "prepared": scenes.kill_between_prepare_and_commit,
    }
    if third is not None:
        scene_by_name["rebalance"] = lambda: scenes.add_and_remove_worker(third)
    return scene_by_name
