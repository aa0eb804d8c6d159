"""What readers see meanwhile: the API is asked all the time, and answers are counted by scene."""

import json
import random
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.attack.web import AttackAnswer, AttackedWeb
from tests.citus.faults.nodes import Nodes, Place
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
class Seen:
    """Answers of one kind of reads in one scene."""

    statuses: Counter[int] = field(default_factory=Counter)
    slowest: float = 0.0

    def __str__(self) -> str:
        counts = ", ".join(f"{number} x {status}" for status, number in self.statuses.items())
        return f"{counts or 'none'}; the slowest {self.slowest:.1f} s"


@dataclass
class Watch:
    """scene: what happens now; dead: the node that is away now."""

    nodes: Nodes
    web: AttackedWeb
    scene: str = "start"
    dead: Place | None = None
    seen: dict[tuple[str, str], Seen] = field(default_factory=lambda: defaultdict(Seen))
    wrong: list[str] = field(default_factory=list)
    sentences: Counter[str] = field(default_factory=Counter)
    _needs: dict[str, set[Place]] = field(default_factory=dict)

    def locate(self) -> None:
        """Find out again which nodes each address needs."""
        rows = [(path, *needed) for path, needed in list_paths().items()]
        columns = [list(column) for column in zip(*rows, strict=True)]
        needs: dict[str, set[Place]] = defaultdict(set)
        for path, host, port in self.nodes.citus.fetch_rows(_SHARDS, columns):
            needs[path].add((host, port))
        self._needs = dict(needs)

    @contextmanager
    def ask_meanwhile(self) -> Iterator[None]:
        """Ask while the block runs."""
        self.locate()
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
            kind = "ledger" if ledger else self._kind(path, dead)
            if (scene, dead) != (self.scene, self.dead):
                kind = "begun before a change"
            seen = self.seen[scene, kind]
            seen.statuses[answer.status] += 1
            seen.slowest = max(seen.slowest, answer.seconds)
            self._judge(scene, path, answer)

    def _kind(self, path: str, dead: Place | None) -> str:
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
