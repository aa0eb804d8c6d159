"""What a version did in plain words: for the first page, and for a note to the client."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

import msgspec
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _

from history import trace
from history.admin.parts import gaps
from history.admin.parts.cards import fields_of, kind_text, name, older_text, title
from history.admin.parts.change_rows import ChangeRow, change_rows, ordered
from history.admin.parts.values import Value
from history.diff import matches
from history.record import ChangeType
from history.timeline import Version

MOST = 40  # changes of one version


def of_version(version: Version, path: str | None) -> Iterator[str]:
    """What is missing before it, then a sentence for each change of rows(version, path). None for
    what says nothing to a client: an update without changes, and who of the bank works on it."""
    if lost := missing(version):
        yield f"{_subject(version)}: {lost}"
    at, subject = moment(version.updated_at), _subject(version)
    if path is None:
        changes = (one for one in version.changes if not one.label or one.label.kind != "person")
        version = msgspec.structs.replace(version, changes=tuple(changes))
    plain = rows(version, path)
    if plain and version.missing:
        at = _("Not later than {day}").format(day=at)
    if version.type is not ChangeType.UPDATE:
        plain = [row for row in plain if row.path]  # a document that is gone is no change of it
        text = _("{day}, {subject}: {what}.")
        yield text.format(day=at, subject=subject, what=kind_text(version.type))
    for row in _merged(plain):
        text = _("{day}, {subject}: {change}.")
        yield text.format(day=at, subject=subject, change=change(row))


def _merged(rows: Sequence[ChangeRow]) -> Collection[ChangeRow]:
    """Those that changed from and to the same words as one, with the names of all."""
    found: dict[object, ChangeRow] = {}
    for row in rows:
        words = _said(row.old), _said(row.new)
        key = (row.kind, row.trail, words) if any(words) else row.path
        label = f"{found[key].label} / {row.label}" if key in found else row.label
        found[key] = replace(row, label=label)
    return found.values()


def _subject(version: Version) -> str:
    named = name(version) if version.entity.parent else ""
    return f"{title(version.entity)} {named}".rstrip()


def missing(version: Version) -> str:
    """What the timeline says of the versions that are missing before one; empty if none is."""
    came = gaps.came(version, lambda fate: trace.said(fate, when=moment))
    gap = gaps.text(version)
    return " ".join(filter(None, [older_text(version), *came, gap and f"{gap}."]))


def moment(at: datetime) -> str:
    """To the minute."""
    time = f"{timezone.localtime(at):%H:%M}"
    return _("{day} at {time}").format(day=day(at), time=time)


def day(at: datetime) -> str:
    """With the year."""
    return date_format(timezone.localtime(at), _("j F Y"))


def rows(version: Version, path: str | None = None) -> Sequence[ChangeRow]:
    """The changes of fields that are not technical, at most MOST. path: only what fits it, also
    technical ones."""
    changes = ordered(version.changes, path)
    if path is not None:
        changes = [one for one in changes if matches(path, one.change)]
    found = change_rows(changes, version.data, fields_of(version.entity), most=MOST)
    return found.plain if path is None else [*found.plain, *found.technical]


def change(row: ChangeRow) -> str:
    """One change, without a full stop."""
    field = " › ".join((*row.trail, row.label))
    old, new = _said(row.old), _said(row.new)
    if row.kind not in ("added", "removed"):
        text = _("“{field}” changed from {old} to {new}") if old and new else _("“{field}” changed")
        return text.format(field=field, old=old, new=new)
    named = bool(row.item and row.trail and not row.note)  # the label is that of the item
    if named:
        field = " › ".join(row.trail)
    if row.kind == "added":
        text = _("item added to “{field}”") if row.item else _("“{field}” added")
    else:
        text = _("item removed from “{field}”") if row.item else _("“{field}” removed")
    value = old or new or (_said(Value("text", row.label)) if named else "")
    return text.format(field=field) + (f": {value}" if value else "")


def _said(value: Value) -> str:
    """Words in quotes; empty where a client learns nothing: signs of a mask, counts of fields."""
    if value.form in ("absent", "masked", "list", "object"):
        return ""
    text = value.head if value.form == "long" else value.local
    return _("“{text}”").format(text=text) if value.form in ("text", "long", "flag") else text
