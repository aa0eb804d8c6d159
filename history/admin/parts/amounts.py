"""Numbers, money and dates as people write them, with every stored digit."""

import re
from collections.abc import Iterator
from decimal import Decimal

from django.utils.formats import get_format
from django.utils.translation import gettext as _

SPACE = "\N{NO-BREAK SPACE}"
MINUS = "\N{MINUS SIGN}"
MAX_DIGITS = 60
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


def count(value: float) -> str:
    """A whole number with separated thousands."""
    return f"{round(value):,}".replace(",", SPACE)


def money(text: str) -> str:
    """A plain decimal number with separated thousands; a fraction has at least two digits."""
    sign = MINUS if text.startswith("-") else ""
    whole, point, fraction = text.lstrip("-").partition(".")
    tail = _point() + fraction.ljust(2, "0") if point else ""
    return sign + SPACE.join(_thousands(whole)) + tail


def percent(text: str) -> str:
    return text.replace("-", MINUS).replace(".", _point()) + SPACE + "%"


def date(found: re.Match[str]) -> str:
    """A match of MOMENT for pages without JavaScript, in the zone it was written in."""
    day = _("{day}.{month}.{year}").format(**found.groupdict())
    return f"{day} {found['time']} {_zone(found)}" if found["time"] else day


def iso(found: re.Match[str]) -> str:
    """A match of MOMENT that has a time, with its offset. Without one it is UTC, as everywhere
    in the messages."""
    return found[0].replace(" ", "T") if found["offset"] else found[0].replace(" ", "T") + "Z"


def _zone(found: re.Match[str]) -> str:
    return "UTC" if found["offset"] in (None, "Z") else f"UTC{found['offset']}"


def _thousands(whole: str) -> Iterator[str]:
    first = len(whole) % 3
    if first:
        yield whole[:first]
    for place in range(first, len(whole), 3):
        yield whole[place : place + 3]


def _point() -> str:
    return str(get_format("DECIMAL_SEPARATOR"))
