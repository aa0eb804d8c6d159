"""Numbers, money, dates as people write them. Every digit that was stored is kept."""

import re
from collections.abc import Iterator
from decimal import Decimal

from django.utils.formats import get_format
from django.utils.translation import gettext as _

SPACE = "\N{NO-BREAK SPACE}"
MINUS = "\N{MINUS SIGN}"
MOST_DIGITS = 60
NUMBER = re.compile(r"-?\d{1,40}(\.\d{1,20})?")
MOMENT = re.compile(
    r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)"
    r"([T ](?P<time>\d\d:\d\d(:\d\d)?)(\.\d{1,9})?(?P<offset>Z|[+-]\d\d:?\d\d)?)?"
)


def number(value: int | Decimal) -> str:
    """A number in plain notation, its thousands together: it may be a year or an account."""
    plain = f"{value:f}"
    if len(plain) > MOST_DIGITS:
        return str(value)
    return plain.replace("-", MINUS).replace(".", _point())


def money(plain: str) -> str:
    """A plain decimal number with thousands apart and at least two digits of hundredths."""
    sign = MINUS if plain.startswith("-") else ""
    whole, point, fraction = plain.lstrip("-").partition(".")
    tail = _point() + fraction.ljust(2, "0") if point else ""
    return sign + SPACE.join(_thousands(whole)) + tail


def percent(plain: str) -> str:
    return plain.replace("-", MINUS).replace(".", _point()) + SPACE + "%"


def date(found: re.Match[str]) -> str:
    """A match of MOMENT without an offset, for nobody knows of which zone it is."""
    day = _("{day}.{month}.{year}").format(**found.groupdict())
    return f"{day} {found['time']}" if found["time"] else day


def _thousands(whole: str) -> Iterator[str]:
    first = len(whole) % 3
    if first:
        yield whole[:first]
    for place in range(first, len(whole), 3):
        yield whole[place : place + 3]


def _point() -> str:
    return str(get_format("DECIMAL_SEPARATOR"))
