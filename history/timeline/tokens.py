"""The tokens of pages: signed, and bound to what was asked for."""

from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

from django.core import signing
from django.utils.translation import gettext as _

from history.timeline.query import BadParameterError

PREFIX = "v1:"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def issue_token(binding: tuple[object, ...], position: tuple[Any, ...]) -> str:
    """The token of a position. `binding`: the values that the next request must not change."""
    values = [_to_json(value) for value in position]
    return PREFIX + signing.dumps(values, salt=_salt(binding), compress=True)


def read_token(binding: tuple[object, ...], token: str) -> list[Any]:
    """The position in a token, moments as aware datetimes in UTC.

    Raises BadParameterError for a token with a wrong signature or of another query.
    """
    try:
        values = signing.loads(token.removeprefix(PREFIX), salt=_salt(binding))
    except signing.BadSignature:
        values = None
    if values is None or not token.startswith(PREFIX):
        raise BadParameterError(
            "pageToken",
            _("is not a token of this call with these parameters; start again without it"),
        )
    return [_from_json(value) for value in values]


def _salt(binding: tuple[object, ...]) -> str:
    return "history.page " + repr([_plain(value) for value in binding])


def _plain(value: object) -> object:
    """A form whose repr is equal in every process and for every notation of one moment."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, Enum):
        return value.name
    if hasattr(value, "__dataclass_fields__"):
        return [_plain(getattr(value, name)) for name in value.__dataclass_fields__]
    return value


def _to_json(value: object) -> object:
    return {"us": (value - EPOCH) // MICROSECOND} if isinstance(value, datetime) else value


def _from_json(value: Any) -> Any:
    return EPOCH + value["us"] * MICROSECOND if isinstance(value, dict) else value
