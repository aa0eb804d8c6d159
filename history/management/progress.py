"""Shows the progress of a long command: as a bar on a terminal, and not at all elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

COLUMNS = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())


@contextmanager
def show_progress(label: str, total: int | None, out: TextIO) -> Iterator[Callable[[int], None]]:
    """Show progress on a terminal during the `with` block.

    Args:
        total: The count at which the work is done, or None if it is not known.

    Yields:
        A function that adds to the count.
    """
    if not out.isatty():
        yield lambda _: None
        return
    with Progress(*COLUMNS, console=Console(file=out)) as bar:
        task = bar.add_task(label, total=total)
        yield lambda count: bar.advance(task, count)
