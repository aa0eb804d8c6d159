"""Marks what differs between the old and the new text of a change."""

from dataclasses import replace

from history.admin.parts.values import Value

MIN_LENGTH = 30
MIN_EQUAL_SHARE = 0.4


def mark_differences(old: Value, new: Value) -> tuple[Value, Value]:
    """Both values, with the part that differs marked where both are long texts. Values that differ
    but read the same become their stored form."""
    texts = ("text", "long")
    if old.form in texts and new.form in texts and old.text != new.text:
        return _marked(old, new)
    if old.text == new.text and old.exact != new.exact and not old.items:
        return replace(old, text=old.exact or old.text), replace(new, text=new.exact or new.text)
    return old, new


def _marked(old: Value, new: Value) -> tuple[Value, Value]:
    shorter = min(len(old.text), len(new.text))
    start = _equal(old.text, new.text, shorter)
    end = _equal(old.text[::-1], new.text[::-1], shorter - start)
    start = _whole_words(old.text, new.text, start)
    end = _whole_words(old.text[::-1], new.text[::-1], end)
    if shorter < MIN_LENGTH or start + end < shorter * MIN_EQUAL_SHARE:
        return old, new
    return _cut(old, start, end), _cut(new, start, end)


def _equal(one: str, other: str, most: int) -> int:
    """The length of the common beginning of both texts."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if one.startswith(other[:middle]):
            low = middle
        else:
            high = middle - 1
    return low


def _whole_words(one: str, other: str, length: int) -> int:
    """A common beginning without the part of a word at its end."""
    if length == len(one) or length == len(other):
        return length
    while length and one[length - 1].isalnum():
        length -= 1
    return length


def _cut(value: Value, start: int, end: int) -> Value:
    stop = len(value.text) - end
    return replace(value, marked=(value.text[:start], value.text[start:stop], value.text[stop:]))
