"""One change of one field as a row of a table: which field, what it was, what it became."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

import msgspec
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from history import masking
from history.admin.parts.headline import Fields
from history.admin.parts.links import MOST_ROWS
from history.admin.parts.value_html import row_html
from history.admin.parts.values import ABSENT, Value, caption, readable
from history.diff import Change, matches, parse
from history.diff.path import escape, unescape
from history.documents.exactjson import Json
from history.timeline import LabelledChange

MIN_LENGTH = 30
MIN_EQUAL_SHARE = 0.4
MOST_WORDS = 100  # with what is between them; the time for a comparison grows with their square
_WORD = re.compile(r"\w+|\W")


def mark_differences(old: Value, new: Value) -> tuple[Value, Value]:
    """Both values, with the words that differ marked where both are long texts."""
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
    ends = (len(old.text) - end, len(new.text) - end)
    inner = _words(old.text[start : ends[0]], new.text[start : ends[1]])
    first, last = old.text[:start], old.text[ends[0] :]
    old_parts, new_parts = ((first, *each, last) for each in inner)
    if shorter < MIN_LENGTH or sum(map(len, old_parts[::2])) < shorter * MIN_EQUAL_SHARE:
        return old, new
    return replace(old, marked=old_parts), replace(new, marked=new_parts)


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


def _words(old: str, new: str) -> tuple[list[str], list[str]]:
    """Both texts in parts that differ and are equal in turn; the first and the last one differ."""
    words = _WORD.findall(old), _WORD.findall(new)
    if max(map(len, words)) > MOST_WORDS:
        return [old], [new]
    found: tuple[list[str], list[str]] = ([""], [""])
    for kind, *ends in SequenceMatcher(None, *words, autojunk=False).get_opcodes():
        parts = "".join(words[0][ends[0] : ends[1]]), "".join(words[1][ends[2] : ends[3]])
        if kind == "equal" and any(map(str.isalnum, parts[0])):
            for its, part in zip(found, parts, strict=True):
                its += [part, ""]
        else:
            for its, part in zip(found, parts, strict=True):
                its[-1] += part
    return found


SHORT_ID = 10
_KEYED = re.compile(r"\[([^=]*)=(.*)\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """path: RFC 6901 pointer. trail: the objects and items around the field, outermost first.
    label: its name. kind: added, removed, changed or moved. note: what the two values do not say.
    filter_url: the timeline with only the versions that changed this field. item: of a list."""

    path: str
    trail: tuple[str, ...]
    label: str
    kind: str
    old: Value
    new: Value
    note: str = ""
    filter_url: str = ""
    item: bool = False

    @property
    def html(self) -> SafeString:
        """As a row of a table."""
        return row_html(self)


@dataclass(frozen=True, slots=True)
class ChangeRows:
    """The rows of plain fields and those of technical ones. hidden: how many come after these."""

    plain: Sequence[ChangeRow]
    technical: Sequence[ChangeRow]
    hidden: int

    @property
    def note(self) -> str:
        """What to say of the changes that have no row; empty where all have one."""
        if not self.hidden:
            return ""
        text = ngettext(
            "{n} more change is not shown here.",
            "{n} more changes are not shown here.",
            self.hidden,
        )
        return text.format(n=self.hidden)


def change_rows(
    changes: Sequence[LabelledChange],
    snapshot: Json,
    fields: Fields,
    link: Callable[[Change], str] = lambda _: "",
    most: int = MOST_ROWS,
    start: int = 0,
) -> ChangeRows:
    """At most this many changes as rows, from `start` on, in order. link: gives filter_url."""
    listed = changes[start : start + most]
    shown, others = (
        [
            row(one.change, snapshot, fields, link(one.change))
            for one in listed
            if one.technical is folded
        ]
        for folded in (False, True)
    )
    return ChangeRows(shown, others, len(changes) - start - len(listed))


def ordered(changes: Sequence[LabelledChange], path: str | None = None) -> list[LabelledChange]:
    """Changes as a person looks for them: those that fit the path of the filter, labelled fields of
    the document, what is inside them, technical ones. path: as in timeline.Filters."""
    steps_of = parse(path) if path is not None else None
    return sorted(
        changes,
        key=lambda one: (
            steps_of is None or not matches(steps_of, one.change),
            one.technical,
            one.label is None or one.change.path.count("/") > 1,
        ),
    )


def row(change: Change, snapshot: Json, fields: Fields, filter_url: str = "") -> ChangeRow:
    """A change for a person. snapshot: the document after it, which gives list items names."""
    names = steps(change.key_path, snapshot, fields) or [_("the whole document")]
    moved = change.kind == "moved"
    notes = [_("moved")] if moved else []
    last = change.key_path.rpartition("/")[2]
    if keyed := _KEYED.fullmatch(last):
        own = change.old if isinstance(change.old, dict) else change.new
        named = caption(own) if isinstance(own, dict) else ""
        if named:
            names[-1] = named
        elif len(names) > 1:
            names.pop()
            notes.append(_short(unescape(keyed[2])))
    if moved:
        old, new = _place(change.from_index), _place(change.to_index)
    else:
        old, new = mark_differences(
            readable(change.old, replace(fields, unmask=None), change.path),  # of another version
            readable(change.new, fields, change.path),
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


def steps(key_path: str, snapshot: Json, fields: Fields) -> list[str]:
    """The segments of a key path as a person reads them: a field by its label; an item of a list
    by its name in the snapshot, else by its shortened key, else by its place."""
    names: list[str] = []
    here: Json = snapshot
    path = ""
    for segment in key_path.split("/")[1:]:
        keyed = _KEYED.fullmatch(segment)
        if keyed:
            identity = unescape(keyed[2])
            here = _item(here, unescape(keyed[1]), identity)
            names.append((isinstance(here, dict) and caption(here)) or _short(identity))
            path += "/0"
        elif isinstance(here, list):
            place = int(segment) if segment.isdecimal() else 0
            here = here[place] if place < len(here) else None
            named = caption(here) if isinstance(here, dict) else ""
            names.append(named or _("no. {place}").format(place=place + 1))
            path += f"/{place}"
        else:
            key = unescape(segment)
            here = here.get(key) if isinstance(here, dict) else None
            path += f"/{escape(key)}"
            names.append(fields.label(path) or key or _("(empty name)"))
    return names


def _item(values: Json, key: str, identity: str) -> Json:
    if isinstance(values, list):
        for value in values:
            if isinstance(value, dict) and str(value.get(key)) == identity:
                return value
    return None


def _short(identity: str) -> str:
    if masking.is_token(identity):
        return masking.shown(identity)
    return identity if len(identity) <= SHORT_ID + 2 else f"{identity[:SHORT_ID]}…"


def _place(index: int | msgspec.UnsetType) -> Value:
    if isinstance(index, msgspec.UnsetType):
        return ABSENT
    return Value("text", _("place {n}").format(n=index + 1))
