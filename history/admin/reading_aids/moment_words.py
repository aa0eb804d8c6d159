"""Parses moments as people write them: “вчера в 15:00”, “12.11.2026 9:30”, “last Tuesday”."""

import re
import unicodedata
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Final, NamedTuple

_DAYS: Final = {
    "позавчера": -2,
    "the day before yesterday": -2,
    "day before yesterday": -2,
    "вчера": -1,
    "сегодня": 0,
    "yesterday": -1,
    "today": 0,
}
# The names of each day, Monday first, also as they are written after “в” and “last”.
_WEEKDAYS: Final = {
    name: place
    for place, names in enumerate(
        (
            "понедельник пн monday mon",
            "вторник вт tuesday tues tue",
            "среда среду ср wednesday wed",
            "четверг чт thursday thurs thur thu",
            "пятница пятницу пт friday fri",
            "суббота субботу сб saturday sat",
            "воскресенье вс sunday sun",
        )
    )
    for name in names.split()
}
# The first three letters of each month. People write months in full or shortened.
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
_WEEKDAY: Final = re.compile(
    r"(?P<last>(last|previous|past|прошл(ый|ая|ую|ое)|прошедш(ий|ая|ую|ее)) )?(?P<name>[^\W\d]+)\.?"
)
_MOMENT: Final = re.compile(
    r"(?P<day>.+?)(?: (?P<hour>[0-2]?\d)"
    r"(?::(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d))?|(?= ?[ap]m))"
    r" ?(?P<half>[ap]m)?)?"
)
_HALF_OF_DAY: Final = re.compile(r"\d ?[ap]m$")
_BEFORE_DAY: Final = re.compile(r"^(?:во?|on) ")
# A number alone is an hour only after these words: “10 November 9” is not a moment.
_BARE_HOUR: Final = re.compile(r" (?:в|at) ([0-2]?\d)$")
_BEFORE_TIME: Final = re.compile(r" (?:в|at) ")
_OFFSET: Final = re.compile(
    r"(?P<words>.*\d:\d\d(?::\d\d(?:\.\d+)?)?) ?"
    r"(?:(?:UTC)?(?P<offset>[+-](?:[01]\d|2[0-3]):?[0-5]\d)|UTC|Z)",
    re.IGNORECASE,
)


def parse_moment(text: str, today: date) -> datetime | None:
    """Return the moment that a text describes, without a time zone. None for any other text.

    A text without a time means the beginning of the day. A date without a year, or a day of the
    week, means the most recent such day; "last Tuesday" is never today.
    """
    match = _MOMENT.fullmatch(_normalize(text))
    day = _parse_day(match["day"], today) if match else None
    if match is None or day is None:
        return None
    hour, minute, second = (int(match[name] or 0) for name in ("hour", "minute", "second"))
    if match["half"]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if match["half"] == "pm" else 0)
    try:
        return datetime.combine(day, time(hour, minute, second))
    except ValueError:
        return None


class SplitMoment(NamedTuple):
    """A moment as written, and the time zone that it names."""

    words: str
    zone: tzinfo | None  # None if it does not name one


def split_offset(text: str) -> SplitMoment:
    """Split the offset from a time of day: “26.11.2026 12:00 UTC+03:00”, “2026-11-26T12:00Z”."""
    match = _OFFSET.fullmatch(text)
    if match is None:
        return SplitMoment(text, None)
    offset = datetime.strptime(match["offset"] or "+0000", "%z").tzinfo
    return SplitMoment(match["words"], offset)


def has_time(text: str) -> bool:
    """Return whether the text of a moment has a time of day."""
    plain = _normalize(text)
    return ":" in plain or _HALF_OF_DAY.search(plain) is not None


def _normalize(text: str) -> str:
    """Return the text in lower case and without prepositions. "15" as an hour becomes "15:00"."""
    words = " ".join(unicodedata.normalize("NFC", text).lower().replace(",", " ").split())
    words = _BARE_HOUR.sub(r" \1:00", _BEFORE_DAY.sub("", words))
    return _BEFORE_TIME.sub(" ", words)


def _parse_day(words: str, today: date) -> date | None:
    if words in _DAYS:
        return today + timedelta(days=_DAYS[words])
    weekday = _WEEKDAY.fullmatch(words)
    if weekday and weekday["name"] in _WEEKDAYS:
        days = (today.weekday() - _WEEKDAYS[weekday["name"]]) % 7
        return today - timedelta(days=days or (7 if weekday["last"] else 0))
    match = _DATE.fullmatch(words)
    if match is None:
        return None
    month_name, year = match[2], match["year"]
    try:
        month = int(month_name) if month_name.isdigit() else _MONTHS[month_name[:3]]
        day = date(int(year or today.year), month, int(match[1]))
        return day if year or day <= today else day.replace(year=day.year - 1)
    except (KeyError, ValueError):
        return None
