"""Text of other people for people: on one line, with nothing in it that cannot be seen."""

import re
from typing import Final

# Letters by Unicode, and nothing on the screen: the fillers of Hangul.
_FILLERS: Final = frozenset("\u115f\u1160\u3164\uffa0")
# A spreadsheet takes a text that begins so for a formula, also after its own separators.
_FORMULA: Final = re.compile(r"(?:^|(?<=[;,|\t\r\n]))(?=\s*[=+\-@\t\r＝＋－＠])")


def no_formula(text: str) -> str:
    """The text as no spreadsheet takes it for a formula."""
    return _FORMULA.sub("'", text)


def one_line(text: str, keep: str = "") -> str:
    """The text with escapes for its control characters but those to keep."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text
    )


def letters(text: str) -> int:
    """How many letters and digits of the text can be seen."""
    return sum(each.isalnum() and each not in _FILLERS for each in text)


def figure(number: int) -> str:
    """A number with spaces between thousands."""
    return f"{number:,}".replace(",", "\N{NO-BREAK SPACE}")
