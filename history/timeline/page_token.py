"""Page tokens: where the next page of a query begins.

A token is signed, and valid only for the query for which it was made.
"""

from datetime import UTC, datetime
from enum import Enum
from typing import Any

from django.core import signing
from django.utils.translation import gettext as _

from history.timeline.query import EPOCH, MICROSECOND, BadParameterError

PREFIX = "v1:"


def issue_token(
    binding: tuple[object, ...], position: tuple[Any, ...], *, compress: bool = True
) -> str:
    """Make the page token of a position.

    Args:
        binding: The values that must be the same in the request for the next page.
        compress: False saves time. Use it for a TimelinePosition, which compression does not make
            shorter.
    """
    values = [
        {"us": (value - EPOCH) // MICROSECOND} if isinstance(value, datetime) else value
        for value in position
    ]
    return PREFIX + signing.dumps(values, salt=_make_salt(binding), compress=compress)


def read_token(binding: tuple[object, ...], token: str, parameter: str = "pageToken") -> list[Any]:
    """Return the position in a page token, with moments as aware datetimes in UTC.

    Args:
        binding: The values with which the token must have been made.
        parameter: The parameter that has the token.

    Raises:
        BadParameterError: The signature of the token is wrong, or it belongs to another query.
    """
    try:
        values = signing.loads(token.removeprefix(PREFIX), salt=_make_salt(binding))
    except signing.BadSignature:
        values = None
    if values is None or not token.startswith(PREFIX):
        raise BadParameterError(
            parameter,
            _("is not a token of this call with these parameters; start again without it"),
        )
    return [
        EPOCH + value["us"] * MICROSECOND if isinstance(value, dict) else value for value in values
    ]


def _make_salt(binding: tuple[object, ...]) -> str:
    return "history.page " + repr([_to_comparable(value) for value in binding])


def _to_comparable(value: object) -> object:
    """Return a form of a value with the same repr in every process.

    Two notations of the same moment have the same form.
    """
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, Enum):
        return value.name
    if hasattr(value, "__dataclass_fields__"):
        return [_to_comparable(getattr(value, name)) for name in value.__dataclass_fields__]
    return value
