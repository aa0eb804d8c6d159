"""Progress of a long command: a bar on a terminal, nothing elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

COLUMNS = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())


@contextmanager
def progress(what: str, total: int | None, out: TextIO) -> Iterator[Callable[[int], None]]:
    """Gives what counts towards a total (None: not known)."""
    if not out.isatty():
        yield lambda _: None
        return
    with Progress(*COLUMNS, console=Console(file=out)) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)
