"""One run of the scenes on a cluster, and its report."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.citus.faults.nodes import Place
from tests.citus.faults.scenes import collect_scenes
from tests.citus.faults.stand import DOCUMENTS, start_stand
from tests.citus.faults.watch import Watch
from tests.citus.faults.workers import WorkerScenes, collect_worker_scenes


@dataclass(frozen=True)
class Plan:
    """dsn: of the coordinator; stop, start: commands for a node; third: a node that has not joined;
    scenes: their names, all if empty; the rest as Scenes and Stand have it."""

    dsn: str
    stop: str
    start: str
    third: Place | None
    scenes: Sequence[str] = ()
    shards: int = 8
    rate: float = 200.0
    seconds: float = 10.0
    times: int = 10


@dataclass(frozen=True)
class Result:
    """lines: what happened; wrong: gaps, and answers that no reader should see."""

    lines: list[str]
    wrong: list[str]


def run(plan: Plan, folder: Path) -> Result:
    """Raises AssertionError where something was lost, doubled or does not go on."""
    with start_stand(folder, plan.dsn, plan.stop, plan.start, plan.shards, plan.rate) as stand:
        stand.feed.send_many(DOCUMENTS * 3)
        stand.wait_until_counted()
        watch = Watch(stand.nodes, stand.web)
        scenes = WorkerScenes(stand, watch, plan.seconds, plan.times)
        scene_by_name = {**collect_scenes(scenes, plan.third), **collect_worker_scenes(scenes)}
        with scenes.last:
            with watch.ask_meanwhile():
                for name in plan.scenes or scene_by_name:
                    scene_by_name[name]()
            stand.consumer.terminate(30)
            stand.check_whole()
            gaps = stand.find_gaps()
        retries = sum(item.read_log().count("trying again") for item in stand.consumers.all)
    lines = [
        *scenes.reports,
        f"the consumers tried again {retries} times",
        *(f"reads, {scene}, {kind}: {seen}" for (scene, kind), seen in watch.seen.items()),
        *(f"refused with 503 {count} times: {text}" for text, count in watch.sentences.items()),
    ]
    return Result(lines, watch.wrong + gaps)
