"""Moments as people write them: “вчера 12:00”, “12.11.2026 9:30”, “10 ноября”, “yesterday”."""

import re
from datetime import date, datetime, time, timedelta
from typing import Final

_DAYS: Final = {
    "позавчера": -2,
    "вчера": -1,
    "сегодня": 0,
    "yesterday": -1,
    "today": 0,
}
# By the first three letters, in full or short.
_MONTHS: Final = {
    name: place
    for names in (
        "янв фев мар апр мая июн июл авг сен окт ноя дек",
        "jan feb mar apr may jun jul aug sep oct nov dec",
    )
    for place, name in enumerate(names.split(), 1)
}
_DATE: Final = re.compile(
    r"([0-3]?\d)[. ]([01]?\d|[^\W\d]{3,}\.?)([. ](?P<year>\d{4})( ?г(ода|\.)?)?)?"
)
_MOMENT: Final = re.compile(r"(.+?)(?: ([0-2]?\d):([0-5]\d)(?::([0-5]\d))?)?")


def parse(text: str, today: date) -> datetime | None:
    """The moment, without a zone; None for anything else. Without a time it is the beginning of the
    day; a date without a year is the last one."""
    plain = text.lower().replace(",", " ").replace(" в ", " ").replace(" at ", " ")
    found = _MOMENT.fullmatch(" ".join(plain.split()))
    day = _day(found[1], today) if found else None
    if found is None or day is None:
        return None
    hour, minute, second = (int(each or 0) for each in found.groups()[1:])
    try:
        return datetime.combine(day, time(hour, minute, second))
    except ValueError:
        return None


def _day(words: str, today: date) -> date | None:
    if words in _DAYS:
        return today + timedelta(days=_DAYS[words])
    found = _DATE.fullmatch(words)
    if found is None:
        return None
    named, year = found[2], found["year"]
    try:
        month = int(named) if named.isdigit() else _MONTHS[named[:3]]
        day = date(int(year or today.year), month, int(found[1]))
        return day if year or day <= today else day.replace(year=day.year - 1)
    except (KeyError, ValueError):
        return None
