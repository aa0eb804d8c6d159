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

    def start_sampling(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop_sampling(self) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        while not self._end.wait(self.pause):
            for name, pid in self.watched().items():
                taken_sample = None if pid is None else take_sample(pid, name in self.trees)
                if taken_sample is not None:
                    self.series[name].append((time.monotonic() - began, taken_sample))


def take_sample(pid: int, with_children: bool) -> Sample | None:
    """Return the sample of a process, or None if it has ended."""
    try:
        top = psutil.Process(pid)
        pids = (
            [pid, *(child.pid for child in top.children(recursive=True))]
            if with_children
            else [pid]
        )
    except psutil.Error:
        return None
    parts = [part for child_id in pids if (part := _read_process(child_id)) is not None]
    if not parts:
        return None
    return Sample(
        sum(part_.private for part_ in parts),
        sum(part_.rss for part_ in parts),
        sum(part_.handles for part_ in parts),
    )


def _read_process(pid: int) -> Sample | None:
    folder = Path("/proc") / str(pid)
    try:
        lines = (folder / "smaps_rollup").read_text().splitlines()[1:]
        handles = len(list((folder / "fd").iterdir()))
    except (OSError, ProcessLookupError):
        return None
    sizes = {
        name: int(text_.split()[0]) / MB for name, _, text_ in (x.partition(":") for x in lines)
    }
    if not sizes:
        return None
    return Sample(sizes["Pss_Anon"], sizes["Rss"], handles)
