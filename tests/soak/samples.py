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
    """The memory and handles of a process, or of a process and its children, at one moment."""

    # Anonymous memory in MB. Pages of files do not count: their share depends on other processes.
    private: float
    rss: float  # in MB
    handles: int  # open files and sockets


@dataclass
class Sampler:
    """A thread that measures processes again and again, until stop_sampling() is called."""

    # Returns the process ids by name. The id of a name can change.
    watched: Callable[[], Mapping[str, int | None]]
    trees: frozenset[str]  # the names whose child processes count too
    pause: float  # seconds between two samples
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
        sum(part.private for part in parts),
        sum(part.rss for part in parts),
        sum(part.handles for part in parts),
    )


def _read_process(pid: int) -> Sample | None:
    folder = Path("/proc") / str(pid)
    try:
        lines = (folder / "smaps_rollup").read_text().splitlines()[1:]
        handles = len(list((folder / "fd").iterdir()))
    except (OSError, ProcessLookupError):
        return None
    sizes = {name: int(size.split()[0]) / MB for name, _, size in (x.partition(":") for x in lines)}
    if not sizes:
        return None
    return Sample(sizes["Pss_Anon"], sizes["Rss"], handles)
