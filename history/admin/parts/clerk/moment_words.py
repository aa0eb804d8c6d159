"""Moments as people write them: “вчера 12:00”, “12.11.2026 9:30”, “yesterday”."""

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
_DATE: Final = re.compile(r"(?P<day>[0-3]?\d)\.(?P<month>[01]?\d)(\.(?P<year>\d{4}))?")
_TIME: Final = re.compile(r"(?P<hour>[0-2]?\d):(?P<minute>[0-5]\d)(:(?P<second>[0-5]\d))?")


def parse(text: str, today: date) -> datetime | None:
    """The moment, without a zone; None for anything else. Without a time it is the beginning of the
    day; a date without a year is the last one."""
    words = text.lower().replace(",", " ").replace(" в ", " ").replace(" at ", " ").split()
    if not 1 <= len(words) <= 2:
        return None
    at = _time(words[1]) if len(words) > 1 else time()
    day = _day(words[0], today)
    return None if day is None or at is None else datetime.combine(day, at)


def _day(word: str, today: date) -> date | None:
    if word in _DAYS:
        return today + timedelta(days=_DAYS[word])
    found = _DATE.fullmatch(word)
    if found is None:
        return None
    try:
        day = date(int(found["year"] or today.year), int(found["month"]), int(found["day"]))
        return day if found["year"] or day <= today else day.replace(year=day.year - 1)
    except ValueError:
        return None


def _time(word: str) -> time | None:
    found = _TIME.fullmatch(word)
    try:
        return time(int(found[1]), int(found[2]), int(found[4] or 0)) if found else None
    except ValueError:
        return None
