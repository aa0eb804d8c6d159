"""The memory and the open handles of processes, sampled while they run."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

MB = 1024.0


@dataclass(frozen=True)
class Sample:
    """Of a process or of a process and its children. private: anonymous memory in MB, without pages
    of files, whose share depends on what else runs; rss: in MB; handles: open files and sockets."""

    private: float
    rss: float
    handles: int


@dataclass
class Sampler:
    """Samples each of the given until stop(). watched: gives the ids of the processes by name; a
    name may change its ids. tree: the names whose children count too."""

    watched: Callable[[], Mapping[str, int | None]]
    trees: frozenset[str]
    pause: float
    series: dict[str, list[tuple[float, Sample]]] = field(default_factory=lambda: defaultdict(list))
    _end: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        while not self._end.wait(self.pause):
            for name, pid in self.watched().items():
                found = None if pid is None else sample(pid, name in self.trees)
                if found is not None:
                    self.series[name].append((time.monotonic() - began, found))


def sample(pid: int, tree: bool) -> Sample | None:
    """None if it has ended meanwhile."""
    try:
        top = psutil.Process(pid)
        pids = [pid, *(each.pid for each in top.children(recursive=True))] if tree else [pid]
    except psutil.Error:
        return None
    parts = [part for each in pids if (part := _one(each)) is not None]
    if not parts:
        return None
    return Sample(
        sum(each.private for each in parts),
        sum(each.rss for each in parts),
        sum(each.handles for each in parts),
    )


def _one(pid: int) -> Sample | None:
    folder = Path("/proc") / str(pid)
    try:
        lines = (folder / "smaps_rollup").read_text().splitlines()[1:]
        handles = len(list((folder / "fd").iterdir()))
    except (OSError, ProcessLookupError):
        return None
    sizes = {name: int(rest.split()[0]) / MB for name, _, rest in (x.partition(":") for x in lines)}
    if not sizes:
        return None
    return Sample(sizes["Pss_Anon"], sizes["Rss"], handles)
