"""Reads query parameters. The API refuses unknown, repeated and malformed parameters with 400."""

import re
from collections.abc import Iterable, Set
from datetime import UTC, datetime, tzinfo
from enum import Enum
from typing import TypeVar
from urllib.parse import parse_qsl
from zoneinfo import ZoneInfo

from django.http import QueryDict
from django.utils.translation import gettext as _

from history.common import zone
from history.timeline import BadParameterError

E = TypeVar("E", bound=Enum)

TEXT_LENGTH = 300
TOKEN_LENGTH = 7000  # the token of a search's last page but one is long; other tokens are short
WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
# Names in the directory of zones that are not time zones of a place.
NO_ZONES = {"Factory", "localtime", "posixrules"}
# The sign of an offset that arrived as a space, because the client did not encode the +.
UNENCODED_PLUS = re.compile(r" (?=\d{2}(:?\d{2})?$)")


class QueryParameters:
    """The query parameters of one request."""

    def __init__(self, values: QueryDict, accepts: Set[str], query: str) -> None:
        """Check the names and the encoding of the parameters.

        Args:
            values: The parameters.
            accepts: The names of the parameters that the call has.
            query: The encoded query string from which Django made `values`.

        Raises:
            BadParameterError: A name is not in `accepts`, or a parameter is not UTF-8.
        """
        for name in sorted(set(values) - accepts):
            raise BadParameterError(name[:TEXT_LENGTH], _("is not a parameter of this call"))
        for name, value in parse_qsl(query, encoding="latin-1"):
            _check_utf8(name, value.encode("latin-1"))
        self._given = values

    def read_text(self, name: str, length: int | None = TEXT_LENGTH) -> str | None:
        """Return the value of a parameter unchanged, or None if the request does not have it.

        Args:
            length: How many characters the value may have. None: any number.

        Raises:
            BadParameterError: The parameter is repeated, empty, too long or has a NUL.
        """
        values = self._given.getlist(name)
        if not values:
            return None
        if len(values) > 1:
            raise BadParameterError(name, _("is given more than once"))
        if not values[0]:
            raise BadParameterError(name, _("is empty"))
        if length is not None and len(values[0]) > length:
            raise BadParameterError(name, _("is longer than {n} characters").format(n=length))
        if "\0" in values[0] and name != "path":  # keys of a document may have a NUL
            raise BadParameterError(name, _("has a NUL character"))
        return values[0]

    def read_required(self, name: str, length: int | None = TEXT_LENGTH) -> str:
        value = self.read_text(name, length)
        if value is None:
            raise BadParameterError(name, _("is required"))
        return value

    def read_login(self, name: str, length: int) -> str | None:
        """Return the value of a parameter, as `read_text` does. Spaces alone count as empty."""
        value = self.read_text(name, length)
        if value is not None and not value.strip():
            raise BadParameterError(name, _("is empty"))
        return value

    def read_number(self, name: str, low: int, high: int) -> int | None:
        value = self.read_text(name)
        return None if value is None else parse_whole_number(name, value, low, high)

    def read_choice(self, name: str, choices: type[E], default: E) -> E:
        """Return the member of the enum `choices` that has the parameter's value.

        If the request does not have the parameter, return `default`.
        """
        value = self.read_text(name)
        if value is None:
            return default
        for choice in choices:
            if choice.value == value:
                return choice
        raise BadParameterError(name, explain_choices(str(choice.value) for choice in choices))

    def read_flag(self, name: str) -> bool:
        """Return whether the parameter is `true`; False if the request does not have it."""
        value = self.read_text(name)
        if value not in (None, "true", "false"):
            raise BadParameterError(name, _("must be true or false"))
        return value == "true"

    def read_members(self, name: str, choices: type[E]) -> frozenset[E]:
        """Return the members of the enum `choices` that the parameter lists with commas.

        If the request does not have the parameter, return all members.
        """
        value = self.read_text(name)
        if value is None:
            return frozenset(choices)
        members_by_value = {choice.value: choice for choice in choices}
        names = value.split(",")
        if not members_by_value.keys() >= set(names):
            text = _("must be any of {words}, comma-separated")
            raise BadParameterError(name, text.format(words=", ".join(members_by_value)))
        return frozenset(members_by_value[word] for word in names)

    def read_zone(self) -> tzinfo:
        """Return the time zone that `tz` names; UTC if the request does not have `tz`."""
        name = self.read_text("tz")
        if name is None:
            return UTC
        if name not in zone.list_zone_names() or name in NO_ZONES:
            text = _("is not the name of a time zone (IANA: Europe/Moscow)")
            raise BadParameterError("tz", text)
        return ZoneInfo(name)

    def read_moment(self, name: str, zone: tzinfo) -> datetime | None:
        """Return a moment in UTC, or None if the request does not have the parameter.

        The parameter is in ISO 8601. A value without an offset is a time in `zone`. Digits after
        the microseconds are ignored.
        """
        value = self.read_text(name)
        if value is None:
            return None
        try:
            moment = datetime.fromisoformat(UNENCODED_PLUS.sub("+", value))
        except ValueError:
            reason = _("is not a moment in ISO 8601, such as 2025-07-03T11:42:48.5+03:00")
            raise BadParameterError(name, reason) from None
        try:
            return moment.replace(tzinfo=moment.tzinfo or zone).astimezone(UTC)
        except OverflowError:
            raise BadParameterError(name, _("is outside the years 1 to 9999 in UTC")) from None

    def read_required_moment(self, name: str, zone: tzinfo) -> datetime:
        moment = self.read_moment(name, zone)
        if moment is None:
            raise BadParameterError(name, _("is required"))
        return moment


def _check_utf8(name: str, value: bytes) -> None:
    try:
        value.decode()
    except UnicodeDecodeError:
        raise BadParameterError(name[:TEXT_LENGTH], _("has bytes that are not UTF-8")) from None


def explain_choices(words: Iterable[str]) -> str:
    """Return the message for a value that is not one of `words`."""
    return _("must be one of {words}").format(words=", ".join(words))


def parse_whole_number(name: str, value: str, low: int, high: int) -> int:
    """Parse a whole number from `low` to `high`, both included.

    Raises:
        BadParameterError: The value is not such a number.
    """
    number = int(value) if WHOLE_NUMBER.fullmatch(value) else low - 1
    if not low <= number <= high:
        text = _("must be a whole number from {low} to {high}")
        raise BadParameterError(name, text.format(low=low, high=high))
    return number
