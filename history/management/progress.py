"""Progress of a long command: a bar on a terminal, a plain line every few seconds elsewhere."""

from time import monotonic
from types import TracebackType
from typing import Final, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

_EVERY: Final = 5.0  # seconds between plain lines
_REDRAW: Final = 0.1


class Progress:
    """Counts towards a total (None: not known). Use it as a context manager."""

    def __init__(self, what: str, total: int | None, out: TextIO) -> None:
        self._what, self._total, self._out = what, total, out
        self._done = 0
        self._began = self._shown = monotonic()
        self._bar = _bar(out) if out.isatty() else None

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task(self._what, total=self._total, rate="")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None or self._bar is not None:
            self._show()
        if self._bar is not None:
            self._bar.stop()

    def advance(self, count: int = 1) -> None:
        self._done += count
        now = monotonic()
        if now - self._shown >= (_EVERY if self._bar is None else _REDRAW):
            self._shown = now
            self._show()

    def _show(self) -> None:
        rate = f"{self._done / max(monotonic() - self._began, 1e-9):,.0f}/s"
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, rate=rate)
            return
        of = "" if self._total is None else f" of {self._total:,}"
        self._out.write(f"{self._what}: {self._done:,}{of}, {rate}\n")
        self._out.flush()


def _bar(out: TextIO) -> Bar:
    return Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        console=Console(file=out),
    )
