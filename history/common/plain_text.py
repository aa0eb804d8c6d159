"""Makes texts from outside safe to show: on one line, visible, and not a spreadsheet formula."""

import re
from typing import Final

# The fillers of Hangul: letters according to Unicode, but invisible.
_FILLERS: Final = frozenset("\u115f\u1160\u3164\uffa0")
# A spreadsheet takes these characters for the beginning of a formula.
_FORMULA_SIGNS: Final = "=+-@＝＋－＠"
_PHONE: Final = r"\+\s?\d[\d\s().-]{4,}"
# Signed numbers with a unit, and phone numbers. A spreadsheet cannot run these as a formula.
_SIGNED_NUMBER: Final = re.compile(
    rf"(?:[+-]\s?\d[\d\s.,]*(?:[eE][+-]?\d+)?|{_PHONE}(?:[,;/]\s*{_PHONE})*)"
    r"(?:\s*[%‰°₽$€£¥])?(?:\s*[^\W\d_][\w\s.]*)?"
)
_LONGEST_NUMBER: Final = 100
# Matches the place between a separator and a dangerous formula: the sign of a formula, and then a
# function, a program (`cmd|' /C calc'!A0`) or a cell of another file. All usual separators count,
# because a spreadsheet may be told to split the file at any of them.
_CALL_AFTER_SEPARATOR: Final = re.compile(
    rf"(?<=[;,|\t\r\n])(?=[^\S\t\r\n]*[{re.escape(_FORMULA_SIGNS)}][^;,\t\r\n]*?"
    r"(?:(?<!\w)[^\W\d]\w*\(|\||['\]\w]!\$?\w|#\$))"
)


def escape_formulas(text: str) -> str:
    """Return the text with apostrophes where a spreadsheet could run it as a formula.

    A text that begins like a formula gets an apostrophe, unless it is a number, a phone number or
    dashes. Inside a text, an apostrophe is put before a formula that calls a function or refers to
    a cell, if the formula follows a character that may separate cells, such as a comma.
    """
    begin = text.lstrip()
    if begin[:1] and begin[0] in _FORMULA_SIGNS and not _is_plain(begin):
        text = f"'{text}"
    return _CALL_AFTER_SEPARATOR.sub("'", text)


def _is_plain(text: str) -> bool:
    """Return whether a text that begins like a formula is a number, a phone number or dashes."""
    if not text.strip("-－ "):
        return True
    return len(text) <= _LONGEST_NUMBER and _SIGNED_NUMBER.fullmatch(text.rstrip()) is not None


def to_one_line(text: str, keep: str = "") -> str:
    """Return the text with its control characters escaped, except those in `keep`."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text
    )


def count_letters(text: str) -> int:
    """Count the visible letters and digits of the text."""
    return sum(character.isalnum() and character not in _FILLERS for character in text)


def format_figure(number: int) -> str:
    """Format a number with spaces between thousands."""
    return f"{number:,}".replace(",", "\N{NO-BREAK SPACE}")
