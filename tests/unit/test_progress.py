"""Progress: lines in a file, a bar on a terminal."""

from io import StringIO

from history.management.progress import Progress


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_file_gets_a_line_with_count_and_total() -> None:
    out = StringIO()
    with Progress("simulate", 2_000, out) as progress:
        for _ in range(1_234):
            progress.advance()
    assert out.getvalue().startswith("simulate: 1,234 of 2,000, ")
    assert out.getvalue().count("\n") == 1


def test_without_a_known_total_only_the_count_is_shown() -> None:
    out = StringIO()
    with Progress("simulate", None, out) as progress:
        progress.advance()
    assert out.getvalue().startswith("simulate: 1, ")


def test_a_terminal_gets_a_bar() -> None:
    out = Terminal()
    with Progress("simulate", 10, out) as progress:
        for _ in range(10):
            progress.advance()
    assert "10/10" in out.getvalue()
    assert "simulate: " not in out.getvalue()
