"""A number and its noun, and tables, in what commands print. The screens have ngettext."""

import io
import shutil
from collections.abc import Collection
from typing import Protocol

# Of a file or pipe: as wide as the table is.
NO_WIDTH = 10_000


class Output(Protocol):
    def write(self, msg: str) -> object: ...


class Table:
    """Columns with a name each, and rows of texts. right: columns of numbers."""

    def __init__(self, *columns: str, right: Collection[str] = ()) -> None:
        self.columns = columns
        self.right = right
        self.rows: list[tuple[str, ...]] = []

    def add(self, *cells: str) -> None:
        """Add a row: a text for each column."""
        self.rows.append(cells)


def print_table(out: Output, table: Table) -> None:
    """Write the table to a command's output; on a terminal in its width."""
    from rich.console import Console
    from rich.table import Table as Layout

    layout = Layout(box=None, pad_edge=False, header_style="", padding=(0, 2, 0, 0))
    for name in table.columns:
        layout.add_column(name, justify="right" if name in table.right else "left", overflow="fold")
    for row in table.rows:
        layout.add_row(*row)
    is_terminal = getattr(out, "isatty", bool)()
    width = shutil.get_terminal_size().columns if is_terminal else NO_WIDTH
    text = io.StringIO()
    Console(file=text, width=width, markup=False, emoji=False, highlight=False).print(layout)
    out.write("\n".join(line.rstrip() for line in text.getvalue().splitlines()))


def counted(count: int, one: str, several: str = "") -> str:
    """`1 day`, `1,234 days`. several: the words for another number than 1, if not one + s."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"
