"""One run of the fault test on a cluster, and the report about the run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.citus.faults.nodes import Address
from tests.citus.faults.scenes import collect_scenes
from tests.citus.faults.stand import DOCUMENTS, start_stand
from tests.citus.faults.watch import ApiWatcher
from tests.citus.faults.workers import WorkerScenes, collect_worker_scenes


@dataclass(frozen=True)
class FaultPlan:
    """Options of one run of the fault test: the cluster, the kinds of faults and the load."""

    dsn: str  # of the coordinator
    # Commands that kill and start a node. See `Nodes`.
    stop: str
    start: str
    third: Address | None  # a node that has not joined the cluster
    scenes: Sequence[str] = ()  # names of kinds of faults; all kinds if empty
    shards: int = 8
    rate: float = 200.0  # messages a second
    seconds: float = 10.0  # how long a node stays dead
    times: int = 10  # how often the consumer is killed


@dataclass(frozen=True)
class FaultReport:
    """The results of one run of the fault test."""

    lines: list[str]  # what happened
    wrong: list[str]  # version gaps, and answers that no reader should get


def run(plan: FaultPlan, folder: Path) -> FaultReport:
    """Run the scenes of a plan on a cluster. Each scene makes one kind of fault under load.

    Raises:
        AssertionError: A message was lost or stored twice, or a process does not continue.
    """
    with start_stand(folder, plan.dsn, plan.stop, plan.start, plan.shards, plan.rate) as stand:
        stand.feed.send_many(DOCUMENTS * 3)
        stand.wait_until_counted()
        watch = ApiWatcher(stand.nodes, stand.web)
        scenes = WorkerScenes(stand, watch, plan.seconds, plan.times)
        scene_by_name = {**collect_scenes(scenes, plan.third), **collect_worker_scenes(scenes)}
        with scenes.last:
            with watch.ask_meanwhile():
                for name in plan.scenes or scene_by_name:
                    scene_by_name[name]()
            stand.consumer.terminate(30)
            stand.check_completeness()
            gaps = stand.find_gaps()
        retries = sum(item.read_log().count("trying again") for item in stand.consumers.all)
    lines = [
        *scenes.reports,
        f"the consumers tried again {retries} times",
        *(f"reads, {scene}, {kind}: {item}" for (scene, kind), item in watch.statistics.items()),
        *(f"refused with 503 {count} times: {text}" for text, count in watch.sentences.items()),
    ]
    return FaultReport(lines, watch.wrong + gaps)
