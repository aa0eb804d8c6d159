"""Text of other people for people: on one line, with nothing in it that cannot be seen."""

from typing import Final

# Letters by Unicode, and nothing on the screen: the fillers of Hangul.
_FILLERS: Final = frozenset("\u115f\u1160\u3164\uffa0")


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
