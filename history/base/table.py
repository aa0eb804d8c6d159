"""A number and its noun, in what commands print. The screens have ngettext."""

from __future__ import annotations

import shutil
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from typing import Protocol

GAP = "  "
INDENT = "  "
DEFAULT_WIDTH = 80


class Output(Protocol):
    def write(self, msg: str) -> object: ...


class Table:
    """Columns with a name each, and rows of texts on one line.

    right: columns of numbers. head: how many of the first columns name a row; in a block they are
    its first line.
    """

    def __init__(self, *columns: str, right: Collection[str] = (), head: int = 1) -> None:
        self._columns = columns
        self._right = [name in right for name in columns]
        self._head = head
        self.rows: list[tuple[str, ...]] = []

    def add(self, *cells: str) -> None:
        """Add a row: a text for each column."""
        if len(cells) != len(self._columns):
            raise ValueError(f"{len(cells)} cells for {len(self._columns)} columns")
        self.rows.append(cells)

    def lines(self, width: int) -> Iterator[str]:
        """The table; if it is wider than this many characters, a block for each row. A block may
        be wider too where one word is: ids and names are never cut."""
        every = [self._columns, *self.rows]
        widths = [max(map(cells, column)) for column in zip(*every, strict=True)]
        if sum(widths) + len(GAP) * (len(widths) - 1) <= width:
            yield from (self._line(row, widths) for row in every)
        else:
            for row in self.rows:
                yield from self._block(row, width)

    def _line(self, row: tuple[str, ...], widths: list[int]) -> str:
        parts = []
        for text, wide, right in zip(row, widths, self._right, strict=True):
            space = " " * (wide - cells(text))
            parts.append(space + text if right else text + space)
        return GAP.join(parts).rstrip()

    def _block(self, row: tuple[str, ...], width: int) -> Iterator[str]:
        yield " ".join(text for text in row[: self._head] if text)
        named = zip(self._columns[self._head :], row[self._head :], strict=True)
        yield from _flowing([f"{name}: {text}" for name, text in named if text], width)


def width() -> int:
    """How many characters a line of standard output has: COLUMNS, else those of the terminal; 80
    where there is none."""
    return shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns


def print_table(out: Output, table: Table) -> None:
    """Write the table to a command's output."""
    out.write("\n".join(table.lines(width())))


def print_sentence(out: Output, text: str) -> None:
    """Write a sentence to a command's output; on a terminal in lines of its width. Elsewhere it is
    one line, for programs that look for it."""
    is_terminal = getattr(out, "isatty", bool)
    out.write("\n".join(_broken(text, width())) if is_terminal() else text)


def cells(text: str) -> int:
    """How many places of a terminal a text takes."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(each) in "WF" for each in text)
    return len(text) + wide - sum(bool(unicodedata.combining(each)) for each in text)


def _flowing(parts: Iterable[str], width: int) -> Iterator[str]:
    """The parts one after another, in lines of this width. Only a part that is longer than a line
    is broken, between its words."""
    line = ""
    for part in parts:
        if line and cells(INDENT + line + GAP + part) <= width:
            line += GAP + part
            continue
        if line:
            yield INDENT + line
        *full, line = _broken(part, width - len(INDENT))
        yield from (INDENT + each for each in full)
    if line:
        yield INDENT + line


def _broken(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if lines[-1] and cells(longer) > width:
            lines.append(f"{INDENT}{word}")
        else:
            lines[-1] = longer
    return lines


def counted(count: int, one: str, several: str = "") -> str:
    """`1 day`, `1,234 days`. several: the words for another number than 1, if not one + s."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"
