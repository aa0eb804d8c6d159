"""Describes a version in plain words, for the start page and for a note to the client."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

import msgspec
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _

from history.admin.components import gaps
from history.admin.components.cards import (
    explain_missing_previous,
    get_change_text,
    get_document_name,
    get_kind_title,
    make_field_names,
)
from history.admin.components.change_rows import (
    ChangeRow,
    ChangeRows,
    make_change_rows,
    order_changes,
)
from history.admin.components.values import ShownValue
from history.completeness import trace
from history.diff import is_matching
from history.documents.record import ChangeType
from history.timeline import LabelledChange, Version

MAX_SENTENCES = 40  # how many changes of one version a note describes
ROWS_AT_A_TIME = 500  # how many changes of one version become rows together


def describe_version(version: Version, path: str | None) -> Iterator[str]:
    """Yield a sentence on missing versions before `version`, then a sentence for each change.

    Describes at most MAX_SENTENCES changes. If there are more, the last sentence counts them.
    Leaves out what does not concern a client: updates without changes, and which employee of the
    bank works on the application.
    """
    if missing_text := explain_missing_before(version):
        yield f"{_format_subject(version)}: {missing_text}"
    time_text, subject = format_moment(version.updated_at), _format_subject(version)
    if path is None:
        changes = (
            change
            for change in version.changes
            if not change.label or change.label.kind != "person"
        )
        version = msgspec.structs.replace(version, changes=tuple(changes))
    rows = make_rows(version, path)
    plain = rows.plain if path is None else [*rows.plain, *rows.technical]
    if plain and version.missing:
        time_text = _("Not later than {day}").format(day=time_text)
    if version.type is not ChangeType.UPDATE:
        # Without the row of the whole document, which is not a change of a field.
        plain = [row for row in plain if row.path]
        text = _("{day}, {subject}: {what}.")
        yield text.format(day=time_text, subject=subject, what=get_change_text(version.type))
    for row in _merge_rows(plain):
        text = _("{day}, {subject}: {change}.")
        yield text.format(day=time_text, subject=subject, change=describe_change(row))
    if rows.hidden:
        text = _("{day}, {subject}: {change}.")
        yield text.format(day=time_text, subject=subject, change=rows.note.removesuffix("."))


def _merge_rows(rows: Sequence[ChangeRow]) -> Collection[ChangeRow]:
    """Merge rows with the same old and new value into one row with the names of all fields."""
    merged_rows: dict[object, ChangeRow] = {}
    for row in rows:
        words = _quote_value(row.old), _quote_value(row.new)
        key = (row.kind, row.trail, words) if any(words) else row.path
        label = f"{merged_rows[key].label} / {row.label}" if key in merged_rows else row.label
        merged_rows[key] = replace(row, label=label)
    return merged_rows.values()


def _format_subject(version: Version) -> str:
    name = get_document_name(version) if version.entity.parent else ""
    return f"{get_kind_title(version.entity)} {name}".rstrip()


def explain_missing_before(version: Version) -> str:
    """Return the sentences of the timeline on missing versions before `version`.

    Empty if none are missing.
    """
    arrived = gaps.describe_arrived(
        version, lambda fate: trace.describe_fate(fate, format_moment=format_moment)
    )
    gap = gaps.explain_missing(version)
    return " ".join(filter(None, [explain_missing_previous(version), *arrived, gap and f"{gap}."]))


def format_moment(moment: datetime) -> str:
    """Return a moment in words, to the minute."""
    time = f"{timezone.localtime(moment):%H:%M}"
    return _("{day} at {time}").format(day=format_day(moment), time=time)


def format_day(moment: datetime) -> str:
    """Return a day in words, with the year."""
    return date_format(timezone.localtime(moment), _("j F Y"))


def make_rows(version: Version, path: str | None = None) -> ChangeRows:
    """Return rows for at most MAX_SENTENCES changes of fields that are not technical.

    With `path`, return rows for the changes that match the path, also technical ones.
    """
    changes = list_changes(version, path)
    if path is None:
        changes = [change for change in changes if not change.technical]
    return make_change_rows(
        changes, version.data, make_field_names(version.entity), max_rows=MAX_SENTENCES
    )


def list_changes(version: Version, path: str | None = None) -> list[LabelledChange]:
    """Return the changes of a version in the order of the screen, technical fields last.

    With `path`, return only the changes that match the path.
    """
    changes = order_changes(version.changes, path)
    if path is None:
        return changes
    return [change for change in changes if is_matching(path, change.change)]


def generate_rows(version: Version, changes: Sequence[LabelledChange]) -> Iterator[ChangeRow]:
    """Yield a row for each of these changes of a version, in order."""
    for start in range(0, len(changes), ROWS_AT_A_TIME):
        # With field names of their own, because these have a budget for what one page draws.
        rows = make_change_rows(
            changes,
            version.data,
            make_field_names(version.entity),
            max_rows=ROWS_AT_A_TIME,
            start=start,
        )
        yield from rows.plain
        yield from rows.technical


def describe_change(row: ChangeRow) -> str:
    """Return a sentence on one change, without a full stop."""
    field = " › ".join((*row.trail, row.label))
    old, new = _quote_value(row.old), _quote_value(row.new)
    if row.kind not in ("added", "removed"):
        text = _("“{field}” changed from {old} to {new}") if old and new else _("“{field}” changed")
        return text.format(field=field, old=old, new=new)
    is_named_item = bool(row.item and row.trail and not row.note)  # the label names the item
    if is_named_item:
        field = " › ".join(row.trail)
    if row.kind == "added":
        text = _("item added to “{field}”") if row.item else _("“{field}” added")
    else:
        text = _("item removed from “{field}”") if row.item else _("“{field}” removed")
    value = old or new or (_quote_value(ShownValue("text", row.label)) if is_named_item else "")
    return text.format(field=field) + (f": {value}" if value else "")


def _quote_value(value: ShownValue) -> str:
    """Write a value for use in a sentence: a text in quotes, a number without them.

    Returns "" for a masked value, a list or an object. The bank's client who reads the sentence
    cannot use these.
    """
    if value.form in ("absent", "masked", "list", "object"):
        return ""
    text = value.head if value.form == "long" else value.local
    return _("“{text}”").format(text=text) if value.form in ("text", "long", "flag") else text
