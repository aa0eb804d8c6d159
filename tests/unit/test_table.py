"""Tables fit the line, or become a block for each row; nothing of a cell is lost."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from history.base.table import Table, cells, print_sentence, print_table


def table(*rows: tuple[str, ...]) -> Table:
    made = Table("topic", "partition", "read", "state", right=("partition", "read"), head=2)
    for row in rows:
        made.add(*row)
    return made


def test_a_table_that_fits_is_in_columns() -> None:
    assert list(table(("first", "0", "12", "read"), ("b", "11", "1,234", "")).lines(40)) == [
        "topic  partition   read  state",
        "first          0     12  read",
        "b             11  1,234",
    ]


def test_a_wider_one_is_a_block_for_each_row() -> None:
    made = table(("first", "0", "12", "halted since yesterday"), ("b", "11", "1,234", ""))
    assert list(made.lines(30)) == [
        "first 0",
        "  read: 12",
        "  state: halted since",
        "    yesterday",
        "b 11",
        "  read: 1,234",
    ]


def test_the_width_is_that_of_columns_else_80(monkeypatch: pytest.MonkeyPatch) -> None:
    made = table(("a" * 45, "0", "1", "b" * 30))
    for columns, lines in (("200", 2), ("40", 3)):
        monkeypatch.setenv("COLUMNS", columns)
        out = io.StringIO()
        print_table(out, made)
        assert len(out.getvalue().splitlines()) == lines
    monkeypatch.delenv("COLUMNS")
    monkeypatch.setattr("sys.__stdout__", io.StringIO())
    out = io.StringIO()
    print_table(out, made)
    assert out.getvalue().splitlines() == [f"{'a' * 45} 0", f"  read: 1  state: {'b' * 30}"]


def test_a_row_has_a_cell_for_each_column() -> None:
    with pytest.raises(ValueError, match="3 cells for 4 columns"):
        table(("a", "b", "c"))


WORDS = st.lists(st.text("aж漢", min_size=1, max_size=9), max_size=6).map(" ".join)


@given(st.lists(st.tuples(WORDS, WORDS, WORDS, WORDS), max_size=4), st.integers(1, 120))
def test_lines_are_not_too_wide_and_have_every_word(
    rows: list[tuple[str, str, str, str]], width: int
) -> None:
    lines = list(table(*rows).lines(width))
    longest = max((cells(word) for row in rows for text in row for word in text.split()), default=0)
    heads = {" ".join(text for text in row[:2] if text) for row in rows}
    names = len("  partition: ")
    assert all(cells(line) <= max(width, longest + names) or line in heads for line in lines)
    words = " ".join(lines).split()
    assert [w for row in rows for text in row for w in text.split() if w not in words] == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_sentence_fits_a_terminal_and_is_one_line_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    sentence = "UNREAD first[0]: 2 messages; data will be lost"
    terminal, file = Terminal(), io.StringIO()
    print_sentence(terminal, sentence)
    print_sentence(file, sentence)
    assert terminal.getvalue().splitlines() == [
        "UNREAD first[0]: 2",
        "  messages; data",
        "  will be lost",
    ]
    assert file.getvalue() == sentence
