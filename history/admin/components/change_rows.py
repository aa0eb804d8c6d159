"""Shows changes as the rows of a table: the field, its old value and its new value."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

import msgspec
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from history.admin.components.headline import FieldTexts
from history.admin.components.links import MOST_ROWS
from history.admin.components.value_html import render_row
from history.admin.components.values import (
    ABSENT,
    ShownValue,
    get_caption,
    make_value,
)
from history.diff import ValueChange, is_matching, parse_path
from history.diff.path import escape_key, unescape_segment
from history.documents.exactjson import Json
from history.policy import masking
from history.timeline import LabelledChange

MIN_LENGTH = 30
MIN_EQUAL_SHARE = 0.4
MOST_WORDS = 100  # with blanks and signs; the time to compare grows with the square
_WORD = re.compile(r"\w+|\W")


def mark_differences(old: ShownValue, new: ShownValue) -> tuple[ShownValue, ShownValue]:
    """Return both values. If both are texts, highlight the words in which they differ."""
    texts = ("text", "long")
    if old.form in texts and new.form in texts and old.text != new.text:
        return _mark_changed_words(old, new)
    if old.text == new.text and old.exact != new.exact and not old.items:
        return replace(old, text=old.exact or old.text), replace(new, text=new.exact or new.text)
    return old, new


def _mark_changed_words(old: ShownValue, new: ShownValue) -> tuple[ShownValue, ShownValue]:
    shorter = min(len(old.text), len(new.text))
    start = _measure_common_start(old.text, new.text, shorter)
    end = _measure_common_start(old.text[::-1], new.text[::-1], shorter - start)
    start = _trim_to_whole_words(old.text, new.text, start)
    end = _trim_to_whole_words(old.text[::-1], new.text[::-1], end)
    ends = (len(old.text) - end, len(new.text) - end)
    inner = _split_into_parts(old.text[start : ends[0]], new.text[start : ends[1]])
    first, last = old.text[:start], old.text[ends[0] :]
    old_parts, new_parts = ((first, *middle, last) for middle in inner)
    if shorter < MIN_LENGTH or sum(map(len, old_parts[::2])) < shorter * MIN_EQUAL_SHARE:
        return old, new
    return replace(old, marked=old_parts), replace(new, marked=new_parts)


def _measure_common_start(first: str, second: str, max_length: int) -> int:
    """Return the length of the common beginning of both texts, at most `max_length`."""
    low, high = 0, max_length
    while low < high:
        middle = (low + high + 1) // 2
        if first.startswith(second[:middle]):
            low = middle
        else:
            high = middle - 1
    return low


def _trim_to_whole_words(first: str, second: str, length: int) -> int:
    """Shorten a common beginning so that it does not end within a word."""
    if length == len(first) or length == len(second):
        return length
    while length and first[length - 1].isalnum():
        length -= 1
    return length


def _split_into_parts(old: str, new: str) -> tuple[list[str], list[str]]:
    """Split both texts so that their parts with odd indexes are equal.

    The parts with even indexes differ. The first and the last part of a text may be empty.
    """
    words = _WORD.findall(old), _WORD.findall(new)
    if max(map(len, words)) > MOST_WORDS:
        return [old], [new]
    split_texts: tuple[list[str], list[str]] = ([""], [""])
    for kind, *ends in SequenceMatcher(None, *words, autojunk=False).get_opcodes():
        parts = "".join(words[0][ends[0] : ends[1]]), "".join(words[1][ends[2] : ends[3]])
        if kind == "equal" and any(map(str.isalnum, parts[0])):
            for text_parts, part in zip(split_texts, parts, strict=True):
                text_parts += [part, ""]
        else:
            for text_parts, part in zip(split_texts, parts, strict=True):
                text_parts[-1] += part
    return split_texts


SHORT_ID_LENGTH = 10
_KEYED = re.compile(r"\[([^=]*)=(.*)\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """One change as a row of a table.

    Attributes:
        path: The RFC 6901 pointer of the field.
        trail: The names of the objects and items around the field, outermost first.
        label: The name of the field.
        kind: "added", "removed", "changed" or "moved".
        note: A remark on what the two values do not show, or empty.
        filter_url: The address of the page with all values of this field, or empty.
        item: Whether the changed value is an item of a list.
    """

    path: str
    trail: tuple[str, ...]
    label: str
    kind: str
    old: ShownValue
    new: ShownValue
    note: str = ""
    filter_url: str = ""
    item: bool = False

    @property
    def html(self) -> SafeString:
        """The change as a row of an HTML table."""
        return render_row(self)


@dataclass(frozen=True, slots=True)
class ChangeRows:
    """The rows of several changes. Technical fields have a list of their own."""

    plain: Sequence[ChangeRow]
    technical: Sequence[ChangeRow]
    hidden: int  # how many further changes do not have a row

    @property
    def note(self) -> str:
        """A sentence that counts the hidden changes; empty if there are none."""
        if not self.hidden:
            return ""
        text = ngettext(
            "{n} more change is not shown here.",
            "{n} more changes are not shown here.",
            self.hidden,
        )
        return text.format(n=self.hidden)


def make_change_rows(
    changes: Sequence[LabelledChange],
    snapshot: Json,
    fields: FieldTexts,
    link: Callable[[ValueChange], str] = lambda _: "",
    max_rows: int = MOST_ROWS,
    start: int = 0,
) -> ChangeRows:
    """Make rows for at most `max_rows` of the changes, in order, from index `start` on.

    `link` returns the `filter_url` of a change.
    """
    listed = changes[start : start + max_rows]
    plain, technical = (
        [
            make_row(labelled.change, snapshot, fields, link(labelled.change))
            for labelled in listed
            if labelled.technical is folded
        ]
        for folded in (False, True)
    )
    return ChangeRows(plain, technical, len(changes) - start - len(listed))


def order_changes(
    changes: Sequence[LabelledChange], path: str | None = None
) -> list[LabelledChange]:
    """Sort changes in the order in which a person looks for them.

    Changes that match `path`, the path of the filter, come first. Then come labelled fields at the
    top level of the snapshot, then fields inside others, then technical fields.
    """
    path_steps = parse_path(path) if path is not None else None
    return sorted(
        changes,
        key=lambda labelled: (
            path_steps is None or not is_matching(path_steps, labelled.change),
            labelled.technical,
            labelled.label is None or labelled.change.path.count("/") > 1,
        ),
    )


def make_row(
    change: ValueChange, snapshot: Json, fields: FieldTexts, filter_url: str = ""
) -> ChangeRow:
    """Return a change as a row.

    `snapshot` is the snapshot after the change. The names of list items are taken from it.
    """
    names = get_step_names(change.key_path, snapshot, fields) or [_("the whole document")]
    moved = change.kind == "moved"
    notes = [_("moved")] if moved else []
    last = change.key_path.rpartition("/")[2]
    if keyed := _KEYED.fullmatch(last):
        item = change.old if isinstance(change.old, dict) else change.new
        item_name = get_caption(item) if isinstance(item, dict) else ""
        if item_name:
            names[-1] = item_name
        elif len(names) > 1:
            names.pop()
            notes.append(_shorten_id(unescape_segment(keyed[2])))
    if moved:
        old, new = _describe_position(change.from_index), _describe_position(change.to_index)
    else:
        old, new = mark_differences(
            # The old value does not link to the page that unmasks it: that page is about one
            # version, and the old value is of another version.
            make_value(change.old, replace(fields, unmask=None), change.path),
            make_value(change.new, fields, change.path),
        )
    return ChangeRow(
        path=change.path,
        trail=tuple(names[:-1]),
        label=names[-1],
        kind=change.kind,
        old=old,
        new=new,
        note=" ".join(notes),
        filter_url=filter_url,
        item=bool(keyed) or last.isdecimal(),
    )


def get_step_names(key_path: str, snapshot: Json, fields: FieldTexts) -> list[str]:
    """Return the segments of a key path in words.

    A field is shown by its label. A list item is shown by its name in the snapshot, or else by its
    shortened key, or else by its position.
    """
    names: list[str] = []
    value: Json = snapshot
    path = ""
    for segment in key_path.split("/")[1:]:
        keyed = _KEYED.fullmatch(segment)
        if keyed:
            identity = unescape_segment(keyed[2])
            value = _find_item(value, unescape_segment(keyed[1]), identity)
            names.append((isinstance(value, dict) and get_caption(value)) or _shorten_id(identity))
            path += "/0"
        elif isinstance(value, list):
            index = int(segment) if segment.isdecimal() else 0
            value = value[index] if index < len(value) else None
            item_name = get_caption(value) if isinstance(value, dict) else ""
            names.append(item_name or _("no. {place}").format(place=index + 1))
            path += f"/{index}"
        else:
            key = unescape_segment(segment)
            value = value.get(key) if isinstance(value, dict) else None
            path += f"/{escape_key(key)}"
            names.append(fields.get_label(path) or key or _("(empty name)"))
    return names


def _find_item(values: Json, key: str, identity: str) -> Json:
    if isinstance(values, list):
        for value in values:
            if isinstance(value, dict) and str(value.get(key)) == identity:
                return value
    return None


def _shorten_id(identity: str) -> str:
    if masking.is_token(identity):
        return masking.shorten_token(identity)
    return identity if len(identity) <= SHORT_ID_LENGTH + 2 else f"{identity[:SHORT_ID_LENGTH]}…"


def _describe_position(index: int | msgspec.UnsetType) -> ShownValue:
    if isinstance(index, msgspec.UnsetType):
        return ABSENT
    return ShownValue("text", _("place {n}").format(n=index + 1))
