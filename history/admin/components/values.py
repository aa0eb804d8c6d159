"""Turns JSON values into text for people, and keeps the exact value beside it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import islice
from typing import Literal

import msgspec
from django.utils import timezone
from django.utils.formats import get_format
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

from history.admin.components.headline import FieldTexts
from history.admin.components.value_html import render_value
from history.common.moment_filter import format_day
from history.diff import MaybeJson
from history.diff.path import escape_key
from history.documents.exactjson import Json, dumps
from history.policy import masking

SPACE = "\N{NO-BREAK SPACE}"
MINUS = "\N{MINUS SIGN}"
MAX_DIGITS = 60
THOUSANDS = re.compile(r"(?<=\d)(?=(\d{3})+$)")
NUMBER = re.compile(r"-?\d{1,40}(\.\d{1,20})?")
MOMENT = re.compile(
    r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)"
    r"([T ](?P<time>\d\d:\d\d(:\d\d)?)(\.\d{1,9})?(?P<offset>Z|[+-]\d\d:?\d\d)?)?"
)


def format_digits(value: int | Decimal) -> str:
    """Return a number with all its digits, without an exponent.

    Only a Decimal is formatted with "f": the format would convert an int to float.
    """
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def format_number(value: int | Decimal) -> str:
    """Return a number without thousands separators: it may be a year or an account number."""
    written = format_digits(value)
    if len(written) > MAX_DIGITS:
        return str(value)
    return written.replace("-", MINUS).replace(".", _get_decimal_point())


def format_money(text: str) -> str:
    """Return a decimal number with thousands separators and at least two decimals."""
    sign = MINUS if text.startswith("-") else ""
    whole, point, fraction = text.lstrip("-").partition(".")
    tail = _get_decimal_point() + fraction.ljust(2, "0") if point else ""
    return sign + THOUSANDS.sub(SPACE, whole) + tail


def format_date(match: re.Match[str]) -> str:
    """Format a moment for a page without JavaScript, in the offset of the stored value.

    Args:
        match: A match of MOMENT.
    """
    day = _("{year}-{month}-{day}").format(**match.groupdict())
    return f"{day} {match['time']} {_format_zone(match)}" if match["time"] else day


def format_iso(match: re.Match[str]) -> str:
    """Format a moment as ISO 8601. A moment without an offset gets UTC.

    Args:
        match: A match of MOMENT. It must have a time of day.
    """
    return match[0].replace(" ", "T") if match["offset"] else match[0].replace(" ", "T") + "Z"


def _format_zone(match: re.Match[str]) -> str:
    return "UTC" if match["offset"] in (None, "Z") else f"UTC{match['offset']}"


def _get_decimal_point() -> str:
    return str(get_format("DECIMAL_SEPARATOR"))


ValueForm = Literal[
    "absent", "null", "text", "long", "number", "flag", "moment", "list", "object", "masked"
]

LONG_TEXT = 240
HEAD_TEXT = 120
INLINE_TEXT = 60
MAX_ITEMS = 100
MAX_DEPTH = 12
OPEN_LEAVES = 6
IDENTITY_KEYS = ("pid", "id")
NAME_KEYS = ("name", "title", "fullName", "number", "code", "text", "type")


@dataclass(frozen=True, slots=True)
class ShownValue:
    """One value as a page shows it.

    Attributes:
        form: How the value is drawn.
        text: The value in the language of the page.
        exact: The stored value as JSON; empty if it equals `text`.
        moment: The value in ISO 8601 with its offset, if it is a moment.
        items: The items of a list or the members of an object, at most MAX_ITEMS.
        hidden: How many items are left out.
        folded: Whether the page shows the items only after a click.
        visible_letters: How many letters of a long text are shown.
        marked: The text split into parts; every second part is highlighted, because it differs
            from the value that it is compared with.
        url: The address of the page that unmasks a masked value, or empty.
    """

    form: ValueForm
    text: str = ""
    exact: str = ""
    moment: str = ""
    items: "tuple[ValueItem, ...]" = ()
    hidden: int = 0
    folded: bool = False
    visible_letters: int = 0
    marked: tuple[str, ...] | None = None
    url: str = ""

    @property
    def html(self) -> SafeString:
        """The value as HTML."""
        return render_value(self)

    @property
    def local(self) -> str:
        """The text of the value. A moment is in the time zone of the viewer."""
        try:
            moment = timezone.localtime(datetime.fromisoformat(self.moment))
        except (ValueError, OverflowError):  # the value is not a moment, or the day does not exist
            return self.text
        # If two moments differ only in their fractions, mark_differences shows the exact text.
        return (
            f"{format_day(moment)} "
            f"{moment.time().isoformat('auto' if self.text == self.exact else 'seconds')}"
        )

    @property
    def head(self) -> str:
        """The beginning of a long text."""
        return self.text[:HEAD_TEXT].rstrip() + "…"

    @property
    def around(self) -> tuple[str, ...]:
        """The highlighted parts of a long text, each with a few characters around it."""
        parts = list(self.marked or ())
        for index, part in enumerate(parts):
            if index % 2:
                parts[index] = part[:LONG_TEXT] + "…" if len(part) > LONG_TEXT else part
            else:
                before = part[:INLINE_TEXT] if index else ""
                after = part[-INLINE_TEXT:] if index < len(parts) - 1 else ""
                if len(before) + len(after) < len(part):
                    parts[index] = f"{before}…{after}"
        return tuple(parts)


@dataclass(frozen=True, slots=True)
class ValueItem:
    """A member of an object, or an item of a list, with its name on the page."""

    name: str
    value: ShownValue


ABSENT = ShownValue("absent", "—")


def make_value(
    value: "MaybeJson | msgspec.Raw", fields: FieldTexts, path: str, depth: int = 0
) -> ShownValue:
    """Return a JSON value as a page shows it.

    `path` is the pointer of the value in the snapshot, by which the label is looked up.
    """
    if isinstance(value, msgspec.UnsetType):
        return ABSENT
    if value is None:
        return ShownValue("null", pgettext("value", "empty"), "null")
    if value is True or value is False:
        return ShownValue("flag", _("yes") if value else _("no"), str(value).lower())
    if isinstance(value, str):
        return _make_text_value(value, fields, path)
    if isinstance(value, int | Decimal):
        return _make_number_value(value, fields, path)
    if isinstance(value, msgspec.Raw):  # a snapshot that Python cannot hold
        return _make_long_value(bytes(value).decode(), fields)
    if value == []:
        return ShownValue("null", _("empty list"), "[]")
    if value == {}:
        return ShownValue("null", _("no fields"), "{}")
    if depth >= MAX_DEPTH:
        return _make_long_value(dumps(value).decode(), fields)
    if isinstance(value, list):
        return _make_list_value(value, fields, path, depth)
    return _make_object_value(value, fields, path, depth)


def make_items(
    value: Mapping[str, Json], fields: FieldTexts, path: str, depth: int
) -> tuple[ValueItem, ...]:
    """Return the members of an object with their labels, technical fields at the end.

    Returns at most MAX_ITEMS, and only as many as the page may still draw.
    """
    plain_and_technical: tuple[list[ValueItem], list[ValueItem]] = ([], [])
    for key, member in islice(value.items(), fields.reserve_values(min(len(value), MAX_ITEMS))):
        pointer = f"{path}/{escape_key(key)}"
        shown_value = make_value(member, fields, pointer, depth)
        item = ValueItem(fields.get_label(pointer) or key, shown_value)
        plain_and_technical[fields.get_kind(pointer) == "technical"].append(item)
    return (*plain_and_technical[0], *plain_and_technical[1])


def get_caption(value: Mapping[str, Json]) -> str:
    """Return the name that an object has in one of NAME_KEYS, shortened, or "".

    A masked value does not count as a name.
    """
    for key in NAME_KEYS:
        text = value.get(key)
        if isinstance(text, str) and text and not masking.is_token(text):
            if len(text) <= INLINE_TEXT:
                return text
            if key == "text":
                return text[:INLINE_TEXT].rstrip() + "…"
    return ""


def _make_text_value(value: str, fields: FieldTexts, path: str) -> ShownValue:
    if masking.is_token(value):
        url = fields.unmask(path) if fields.unmask else ""
        return ShownValue("masked", masking.shorten_token(value), value, url=url)
    exact = dumps(value).decode()
    if not value:
        return ShownValue("null", _("empty text"), exact)
    if not value.strip():
        return ShownValue("null", _("only spaces"), exact)
    kind = fields.get_kind(path)
    if kind == "enum":
        return ShownValue("text", fields.get_word(path, value) or value, exact)
    if kind == "person" and "\0" not in value:
        return ShownValue("text", fields.get_person(value), exact)
    if kind in ("money", "percent") and NUMBER.fullmatch(value):
        return ShownValue("number", _format_amount(value, kind), exact)
    if moment := MOMENT.fullmatch(value):
        if moment["time"]:
            return ShownValue("moment", format_date(moment), exact, moment=format_iso(moment))
        return ShownValue("text", format_date(moment), exact)
    if len(value) > LONG_TEXT or value.count("\n") > 3:
        return _make_long_value(value, fields)
    return ShownValue("text", value, exact if "\0" in value else "")


def _make_long_value(text: str, fields: FieldTexts) -> ShownValue:
    return ShownValue("long", text, folded=True, visible_letters=fields.reserve_letters(len(text)))


def _make_number_value(value: int | Decimal, fields: FieldTexts, path: str) -> ShownValue:
    exact, kind, written = dumps(value).decode(), fields.get_kind(path), format_digits(value)
    if kind in ("money", "percent") and NUMBER.fullmatch(written):
        return ShownValue("number", _format_amount(written, kind), exact)
    return ShownValue("number", format_number(value), exact)


def _format_amount(plain: str, kind: str) -> str:
    if kind == "money":
        return format_money(plain)
    return plain.replace("-", MINUS).replace(".", _get_decimal_point()) + SPACE + "%"


def _make_list_value(
    values: Sequence[Json], fields: FieldTexts, path: str, depth: int
) -> ShownValue:
    items = tuple(
        ValueItem(
            _get_item_name(value, place), make_value(value, fields, f"{path}/{place}", depth + 1)
        )
        for place, value in enumerate(
            islice(values, fields.reserve_values(min(len(values), MAX_ITEMS)))
        )
    )
    if len(items) == len(values) and all(i.value.form in ("text", "number", "flag") for i in items):
        line = ", ".join(item.value.text for item in items)
        if len(line) <= LONG_TEXT:
            return ShownValue("text", line, dumps(list(values)).decode())
    count = ngettext("{n} item", "{n} items", len(values)).format(n=len(values))
    return ShownValue(
        "list",
        count,
        items=items,
        hidden=len(values) - len(items),
        folded=_is_folded(values, depth),
    )


def _make_object_value(
    value: Mapping[str, Json], fields: FieldTexts, path: str, depth: int
) -> ShownValue:
    items = make_items(value, fields, path, depth + 1)
    count = ngettext("{n} field", "{n} fields", len(value)).format(n=len(value))
    name = get_caption(value)
    return ShownValue(
        "object",
        f"{name} ({count})" if name else count,
        items=items,
        hidden=len(value) - len(items),
        folded=_is_folded(value, depth),
    )


def _is_folded(value: object, depth: int) -> bool:
    return depth > 0 or any(True for _leaf in islice(_iterate_scalars(value), OPEN_LEAVES, None))


def _get_item_name(value: Json, index: int) -> str:
    if isinstance(value, dict):
        for key in IDENTITY_KEYS:
            identity = value.get(key)
            if isinstance(identity, str | int) and not isinstance(identity, bool):
                return masking.shorten_token(str(identity))
    return str(index + 1)


def _iterate_scalars(value: object) -> Iterator[object]:
    """Yield the scalars in a value."""
    stack = [value]
    while stack:
        top = stack.pop()
        if isinstance(top, Mapping):
            stack.extend(top.values())
        elif isinstance(top, list):
            stack.extend(top)
        else:
            yield top
