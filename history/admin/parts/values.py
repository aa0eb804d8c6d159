"""JSON values for a person to read: what a template shows, and the exact value."""

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

from history import masking
from history.admin.parts.headline import Fields
from history.admin.parts.value_html import value_html
from history.base.moments import day
from history.diff import Maybe
from history.diff.path import escape
from history.documents.exactjson import Json, dumps

SPACE = "\N{NO-BREAK SPACE}"
MINUS = "\N{MINUS SIGN}"
MAX_DIGITS = 60
THOUSANDS = re.compile(r"(?<=\d)(?=(\d{3})+$)")
NUMBER = re.compile(r"-?\d{1,40}(\.\d{1,20})?")
MOMENT = re.compile(
    r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)"
    r"([T ](?P<time>\d\d:\d\d(:\d\d)?)(\.\d{1,9})?(?P<offset>Z|[+-]\d\d:?\d\d)?)?"
)


def plain(value: int | Decimal) -> str:
    """All digits, no exponent. An int would go through float if it were formatted with f."""
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def number(value: int | Decimal) -> str:
    """A number in plain notation, without separators: it may be a year or an account."""
    written = plain(value)
    if len(written) > MAX_DIGITS:
        return str(value)
    return written.replace("-", MINUS).replace(".", _point())


def money(text: str) -> str:
    """A plain decimal number with separated thousands; a fraction has at least two digits."""
    sign = MINUS if text.startswith("-") else ""
    whole, point, fraction = text.lstrip("-").partition(".")
    tail = _point() + fraction.ljust(2, "0") if point else ""
    return sign + THOUSANDS.sub(SPACE, whole) + tail


def date(found: re.Match[str]) -> str:
    """A match of MOMENT for pages without JavaScript, in the zone it was written in."""
    day = _("{year}-{month}-{day}").format(**found.groupdict())
    return f"{day} {found['time']} {_zone(found)}" if found["time"] else day


def iso(found: re.Match[str]) -> str:
    """A match of MOMENT that has a time, with its offset. Without one it is UTC."""
    return found[0].replace(" ", "T") if found["offset"] else found[0].replace(" ", "T") + "Z"


def _zone(found: re.Match[str]) -> str:
    return "UTC" if found["offset"] in (None, "Z") else f"UTC{found['offset']}"


def _point() -> str:
    return str(get_format("DECIMAL_SEPARATOR"))


Form = Literal[
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
class Value:
    """One value as it is shown. text: in the reader's language. exact: the stored value as JSON,
    empty where it equals text. moment: ISO 8601 with offset. items: of a list or object, at most
    MAX_ITEMS; hidden: how many more. most: letters of a long text that are shown. marked: the text
    in parts, every second one differs. url: where a masked value is shown."""

    form: Form
    text: str = ""
    exact: str = ""
    moment: str = ""
    items: "tuple[Item, ...]" = ()
    hidden: int = 0
    folded: bool = False
    most: int = 0
    marked: tuple[str, ...] | None = None
    url: str = ""

    @property
    def html(self) -> SafeString:
        """As HTML."""
        return value_html(self)

    @property
    def local(self) -> str:
        """The text; of a moment in the reader's zone."""
        try:
            at = timezone.localtime(datetime.fromisoformat(self.moment))
        except (ValueError, OverflowError):  # no moment, or no such day
            return self.text
        # mark_differences gives moments that differ only in the fraction their exact text.
        return f"{day(at)} {at.time().isoformat('auto' if self.text == self.exact else 'seconds')}"

    @property
    def head(self) -> str:
        """The beginning of a long text."""
        return self.text[:HEAD_TEXT].rstrip() + "…"

    @property
    def around(self) -> tuple[str, ...]:
        """The marked parts of a long text with a few characters before and after each."""
        parts = list(self.marked or ())
        for place, part in enumerate(parts):
            if place % 2:
                parts[place] = part[:LONG_TEXT] + "…" if len(part) > LONG_TEXT else part
            else:
                before = part[:INLINE_TEXT] if place else ""
                after = part[-INLINE_TEXT:] if place < len(parts) - 1 else ""
                if len(before) + len(after) < len(part):
                    parts[place] = f"{before}…{after}"
        return tuple(parts)


@dataclass(frozen=True, slots=True)
class Item:
    """A member of an object, or an item of a list; name: its field, key or number."""

    name: str
    value: Value


ABSENT = Value("absent", "—")


def readable(value: "Maybe | msgspec.Raw", fields: Fields, path: str, depth: int = 0) -> Value:
    """A value for a person. path: where it is in the snapshot; the catalogue goes by this."""
    if isinstance(value, msgspec.UnsetType):
        return ABSENT
    if value is None:
        return Value("null", pgettext("value", "empty"), "null")
    if value is True or value is False:
        return Value("flag", _("yes") if value else _("no"), str(value).lower())
    if isinstance(value, str):
        return _text(value, fields, path)
    if isinstance(value, int | Decimal):
        return _number(value, fields, path)
    if isinstance(value, msgspec.Raw):  # a document that Python cannot hold
        return _long(bytes(value).decode(), fields)
    if value == []:
        return Value("null", _("empty list"), "[]")
    if value == {}:
        return Value("null", _("no fields"), "{}")
    if depth >= MAX_DEPTH:
        return _long(dumps(value).decode(), fields)
    if isinstance(value, list):
        return _list(value, fields, path, depth)
    return _object(value, fields, path, depth)


def members(value: Mapping[str, Json], fields: Fields, path: str, depth: int) -> tuple[Item, ...]:
    """The members of an object with their labels, at most MAX_ITEMS, and as room allows; technical
    ones at the end."""
    found: tuple[list[Item], list[Item]] = ([], [])
    for key, member in islice(value.items(), fields.take(min(len(value), MAX_ITEMS))):
        place = f"{path}/{escape(key)}"
        item = Item(fields.label(place) or key, readable(member, fields, place, depth))
        found[fields.kind(place) == "technical"].append(item)
    return (*found[0], *found[1])


def caption(value: Mapping[str, Json]) -> str:
    """The name of an object from its own fields, the beginning of its text, or empty. A masked
    value is no name."""
    for key in NAME_KEYS:
        text = value.get(key)
        if isinstance(text, str) and text and not masking.is_token(text):
            if len(text) <= INLINE_TEXT:
                return text
            if key == "text":
                return text[:INLINE_TEXT].rstrip() + "…"
    return ""


def _text(value: str, fields: Fields, path: str) -> Value:
    if masking.is_token(value):
        url = fields.unmask(path) if fields.unmask else ""
        return Value("masked", masking.shown(value), value, url=url)
    exact = dumps(value).decode()
    if not value:
        return Value("null", _("empty text"), exact)
    if not value.strip():
        return Value("null", _("only spaces"), exact)
    kind = fields.kind(path)
    if kind == "enum":
        return Value("text", fields.word(path, value) or value, exact)
    if kind == "person" and "\0" not in value:
        return Value("text", fields.person(value), exact)
    if kind in ("money", "percent") and NUMBER.fullmatch(value):
        return Value("number", _amount(value, kind), exact)
    if moment := MOMENT.fullmatch(value):
        if moment["time"]:
            return Value("moment", date(moment), exact, moment=iso(moment))
        return Value("text", date(moment), exact)
    if len(value) > LONG_TEXT or value.count("\n") > 3:
        return _long(value, fields)
    return Value("text", value, exact if "\0" in value else "")


def _long(text: str, fields: Fields) -> Value:
    return Value("long", text, folded=True, most=fields.letters(len(text)))


def _number(value: int | Decimal, fields: Fields, path: str) -> Value:
    exact, kind, written = dumps(value).decode(), fields.kind(path), plain(value)
    if kind in ("money", "percent") and NUMBER.fullmatch(written):
        return Value("number", _amount(written, kind), exact)
    return Value("number", number(value), exact)


def _amount(plain: str, kind: str) -> str:
    if kind == "money":
        return money(plain)
    return plain.replace("-", MINUS).replace(".", _point()) + SPACE + "%"


def _list(values: Sequence[Json], fields: Fields, path: str, depth: int) -> Value:
    shown = tuple(
        Item(_item_name(value, place), readable(value, fields, f"{path}/{place}", depth + 1))
        for place, value in enumerate(islice(values, fields.take(min(len(values), MAX_ITEMS))))
    )
    if len(shown) == len(values) and all(i.value.form in ("text", "number", "flag") for i in shown):
        line = ", ".join(item.value.text for item in shown)
        if len(line) <= LONG_TEXT:
            return Value("text", line, dumps(list(values)).decode())
    count = ngettext("{n} item", "{n} items", len(values)).format(n=len(values))
    return Value(
        "list", count, items=shown, hidden=len(values) - len(shown), folded=_folded(values, depth)
    )


def _object(value: Mapping[str, Json], fields: Fields, path: str, depth: int) -> Value:
    shown = members(value, fields, path, depth + 1)
    count = ngettext("{n} field", "{n} fields", len(value)).format(n=len(value))
    named = caption(value)
    return Value(
        "object",
        f"{named} ({count})" if named else count,
        items=shown,
        hidden=len(value) - len(shown),
        folded=_folded(value, depth),
    )


def _folded(value: object, depth: int) -> bool:
    return depth > 0 or any(True for _leaf in islice(_walk(value), OPEN_LEAVES, None))


def _item_name(value: Json, place: int) -> str:
    if isinstance(value, dict):
        for key in IDENTITY_KEYS:
            identity = value.get(key)
            if isinstance(identity, str | int) and not isinstance(identity, bool):
                return masking.shown(str(identity))
    return str(place + 1)


def _walk(value: object) -> Iterator[object]:
    """The scalars in a value."""
    stack = [value]
    while stack:
        top = stack.pop()
        if isinstance(top, Mapping):
            stack.extend(top.values())
        elif isinstance(top, list):
            stack.extend(top)
        else:
            yield top
