"""Text of other people for people: on one line, with nothing in it that cannot be seen."""

import re
from typing import Final

# Letters by Unicode, and nothing on the screen: the fillers of Hangul.
_FILLERS: Final = frozenset("\u115f\u1160\u3164\uffa0")
# A spreadsheet takes these characters for the beginning of a formula.
_FORMULA_SIGNS: Final = "=+-@＝＋－＠"
_PHONE: Final = r"\+\s?\d[\d\s().-]{4,}"
# A signed number with its unit, and phone numbers: no spreadsheet can run anything of them.
_SIGNED_NUMBER: Final = re.compile(
    rf"(?:[+-]\s?\d[\d\s.,]*(?:[eE][+-]?\d+)?|{_PHONE}(?:[,;/]\s*{_PHONE})*)"
    r"(?:\s*[%‰°₽$€£¥])?(?:\s*[^\W\d_][\w\s.]*)?"
)
_LONGEST_NUMBER: Final = 100
# A function, a program (`cmd|' /C calc'!A0`) or a cell of another file, after a sign of a formula
# and after the separator of a file that a spreadsheet reads with another separator than ours.
_CALL_AFTER_SEPARATOR: Final = re.compile(
    rf"(?<=[;,|\t\r\n])(?=[^\S\t\r\n]*[{re.escape(_FORMULA_SIGNS)}][^;,\t\r\n]*?"
    r"(?:(?<!\w)[^\W\d]\w*\(|\||['\]\w]!\$?\w|#\$))"
)


def escape_formulas(text: str) -> str:
    """Return the text so that no spreadsheet runs it as a formula.

    A text that begins like a formula gets an apostrophe; numbers, phone numbers and dashes stay as
    they are. Inside of a text only calls and references after a separator get one: a spreadsheet
    that reads the file with another separator would begin a cell there.
    """
    begin = text.lstrip()
    if begin[:1] and begin[0] in _FORMULA_SIGNS and not _is_plain(begin):
        text = f"'{text}"
    return _CALL_AFTER_SEPARATOR.sub("'", text)


def _is_plain(text: str) -> bool:
    """Return whether a text with the sign of a formula is a number, a phone number or dashes."""
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
    """Count the letters and digits of the text that can be seen."""
    return sum(character.isalnum() and character not in _FILLERS for character in text)


def format_figure(number: int) -> str:
    """Format a number with spaces between thousands."""
    return f"{number:,}".replace(",", "\N{NO-BREAK SPACE}")
