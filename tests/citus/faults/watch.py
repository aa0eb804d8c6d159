"""Sends requests to the API during the fault test, and counts the answers for each fault."""

import json
import random
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.attack.web import AttackAnswer, AttackedWeb
from tests.citus.faults.nodes import Address, Nodes
from tests.citus.faults.stand import list_paths

READERS = 2
TIMEOUT_S = 30
LEDGER = "/api/v1/completeness"

_SHARDS = """
SELECT k.path, n.nodename, n.nodeport::int
FROM unnest(%s::text[], %s::text[], %s::text[]) AS k(path, name, value)
JOIN pg_dist_placement p
    ON p.shardid = get_shard_id_for_distribution_column(k.name::regclass, k.value)
JOIN pg_dist_node n ON n.groupid = p.groupid AND n.noderole = 'primary'
"""


@dataclass
class ReadStatistics:
    """The answers to one kind of requests during one fault."""

    statuses: Counter[int] = field(default_factory=Counter)
    slowest: float = 0.0  # seconds

    def __str__(self) -> str:
        counts = ", ".join(f"{number} x {status}" for status, number in self.statuses.items())
        return f"{counts or 'none'}; the slowest {self.slowest:.1f} s"


@dataclass
class ApiWatcher:
    """Sends requests to the API from several threads, and judges the answers."""

    nodes: Nodes
    web: AttackedWeb
    scene: str = "start"  # the scene that runs now
    dead: Address | None = None  # the node that is dead now
    # The answers by scene and kind of request.
    statistics: dict[tuple[str, str], ReadStatistics] = field(
        default_factory=lambda: defaultdict(ReadStatistics)
    )
    wrong: list[str] = field(default_factory=list)  # answers that no reader should get
    sentences: Counter[str] = field(default_factory=Counter)  # error messages of answers with 503
    _needs: dict[str, set[Address]] = field(default_factory=dict)

    def locate_shards(self) -> None:
        """Find the nodes that store the data for each API address. Call it after shards moved."""
        rows = [(path, *needed) for path, needed in list_paths().items()]
        columns = [list(column) for column in zip(*rows, strict=True)]
        needs: dict[str, set[Address]] = defaultdict(set)
        for path, host, port in self.nodes.citus.fetch_rows(_SHARDS, columns):
            needs[path].add((host, port))
        self._needs = dict(needs)

    @contextmanager
    def ask_meanwhile(self) -> Iterator[None]:
        """Send requests while the block runs."""
        self.locate_shards()
        stop = threading.Event()
        threads = [threading.Thread(target=self._ask, args=[stop, n]) for n in range(READERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def _ask(self, stop: threading.Event, number: int) -> None:
        chance = random.Random(number)
        while not stop.wait(0.02):
            ledger = chance.random() < 0.1
            path = LEDGER if ledger else chance.choice(list(self._needs))
            scene, dead = self.scene, self.dead
            answer = self.web.send_request(path, TIMEOUT_S, headers={"Accept-Language": "en"})
            kind = "ledger" if ledger else self._classify(path, dead)
            if (scene, dead) != (self.scene, self.dead):
                kind = "begun before a change"
            statistics = self.statistics[scene, kind]
            statistics.statuses[answer.status] += 1
            statistics.slowest = max(statistics.slowest, answer.seconds)
            self._judge(scene, path, answer)

    def _classify(self, path: str, dead: Address | None) -> str:
        if dead is None:
            return "all shards"
        return "its shards" if dead in self._needs[path] else "other shards"

    def _judge(self, scene: str, path: str, answer: AttackAnswer) -> None:
        if answer.status in (200, 404):
            return
        text = answer.body.decode("utf-8", "replace")
        if answer.status == 503 and "retry-after" in answer.headers:
            self.sentences[json.loads(text)["error"]["message"]] += 1
            return
        self.wrong.append(f"{scene}: {path}: {answer.status} {text[:300]}")
