"""What the journal keeps of the parameters of a request: nothing that can be data of a client."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from django.core.exceptions import TooManyFieldsSent
from django.http import HttpRequest, QueryDict

from annals.access.journal.words import Action, Outcome
from history.entities import BY_NAME, BY_TOPIC

# An unknown name is counted, and not kept: a name can be data as well as a value.
OTHERS: Final = "others"
TOO_MANY: Final = "too many parameters"
_LARGEST_VERSION: Final = 99_999
_YEARS: Final = range(2010, 2100)  # a date of birth is mostly none of these


def given(request: HttpRequest) -> QueryDict | None:
    """The parameters of the address; None where there are more than Django reads."""
    try:
        return request.GET
    except TooManyFieldsSent:
        return None


def kept(request: HttpRequest, action: Action) -> str:
    """The names of the known parameters, with the values that are of a closed set, or are a number
    of a version or a moment."""
    asked = given(request)
    if asked is None:
        return TOO_MANY
    found = [_kept(name, str(value), action) for name, value in asked.items() if name in _KNOWN]
    others = sum(name not in _KNOWN for name in asked)
    return "&".join([*found, *([f"{OTHERS}={others}"] if others else ())])


def _kept(name: str, value: str, action: Action) -> str:
    if name == "login":  # of an employee or a program; what was asked of the journal
        return f"{name}={value}" if action is Action.JOURNAL else name
    try:
        text = _KNOWN[name](value)
    except ValueError:
        text = ""
    return f"{name}={text}" if text else name


def _nothing(_: str) -> str:
    return ""


def _one_of(*words: str) -> Callable[[str], str]:
    return lambda value: value if value in words else ""


def _some_of(*words: str) -> Callable[[str], str]:
    return lambda value: value if set(words).issuperset(value.split(",")) else ""


def _number(largest: int) -> Callable[[str], str]:
    def number(value: str) -> str:
        short = value.isascii() and value.isdigit() and int(value[:9]) <= largest
        return str(int(value)) if short and len(value) < 9 else ""

    return number


def _moment(value: str) -> str:
    """Raises ValueError."""
    if "-" not in value:  # ISO 8601 without separators looks like any number
        return ""
    found = datetime.fromisoformat(value)
    if found.year not in _YEARS:
        return ""
    return found.isoformat() if found.tzinfo is None else found.astimezone(UTC).isoformat()


def _version_or_moment(value: str) -> str:
    return _number(_LARGEST_VERSION)(value) or _moment(value)


_KNOWN: Final[dict[str, Callable[[str], str]]] = {
    "pageSize": _number(500),
    "sort": _one_of("updatedAt", "version"),
    "order": _one_of("asc", "desc"),
    "type": _one_of("CREATE", "UPDATE", "DELETE"),
    "include": _some_of("entity", "diff", "changes"),
    "archive": _one_of("true", "false"),
    "download": _one_of("1"),
    "format": _one_of("csv", "json"),
    "entity": _one_of(*BY_NAME),
    "topic": _one_of(*BY_TOPIC),
    "version": _number(_LARGEST_VERSION),
    "partition": _number(_LARGEST_VERSION),
    "offset": _number(99_999_999),
    "action": _one_of(*Action.values),
    "outcome": _one_of(*Outcome.values),
    **dict.fromkeys(("from", "to"), _version_or_moment),
    **dict.fromkeys(("time", "since", "until", "at", "fromAt", "toAt", "updatedAt"), _moment),
    **dict.fromkeys(
        (
            *("path", "author", "clientId", "tz", "q", "id", "application", "login", "all"),
            *("pageToken", "page", "visited", "after", "reason__exact", "status__exact"),
            *("topic__exact", "p", "o", "e"),
        ),
        _nothing,
    ),
}
