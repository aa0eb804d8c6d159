"""Formats tables, and numbers with their nouns, for the output of commands."""

import shutil
from collections.abc import Collection
from io import StringIO, TextIOBase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

# The width if the output is a file or a pipe: the table becomes as wide as it needs.
NO_WIDTH = 10_000


def build_table(*names: str, right: Collection[str] = ()) -> "Table":
    """Return an empty table with these columns. Its add_row() takes a text for each column.

    Args:
        right: The columns that are aligned to the right.
    """
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="", padding=(0, 2, 0, 0))
    for name in names:
        table.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return table


def print_table(out: TextIOBase, table: "Table") -> None:
    """Write the table to a command's output; on a terminal, within the terminal's width."""
    from rich.console import Console

    width = shutil.get_terminal_size().columns if out.isatty() else NO_WIDTH
    text = StringIO()
    Console(file=text, width=width, markup=False, emoji=False, highlight=False).print(table)
    out.write("\n".join(line.rstrip() for line in text.getvalue().splitlines()))


def pluralize(count: int, singular: str, plural: str = "") -> str:
    """Return a count with its noun: `1 day`, `1,234 days`.

    Args:
        plural: The noun for counts other than 1; by default `singular` with an s.
    """
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"
