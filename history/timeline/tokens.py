"""What the token of a page remembers: where the next page begins, and which sources were read."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, Final, NamedTuple

from django.core import signing
from django.utils.translation import gettext as _

from history.entities import Entity
from history.timeline.query import BadParameterError
from history.timeline.reading import Reader

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


OURS: Final = "ours"
BOTH: Final = "both"


class Course(NamedTuple):
    """Who reads a page. mark: for the token of the next one; None where there is no old service.
    waits: the old service failed between two pages, so this page is for later."""

    reader: Reader
    mark: str | None = None
    waits: bool = False


def follow(
    reader: Reader, kinds: Sequence[Entity], id: str, page_token: str | None, mark: str | None
) -> Course:
    """The course of a page of these kinds: one entity, or an application with its children. mark:
    of the token, if there is one."""
    alone = reader.without_old_service()
    possible = reader.old.possible
    if possible and (page_token is None or mark == BOTH):
        old = reader.old
        whole = len(kinds) > 1
        if old.want_application(id) if whole else old.want(kinds[0], id):
            return Course(reader, BOTH)
        return Course(alone, mark or OURS, waits=mark == BOTH)
    if page_token is not None and (mark or possible):
        reader.old.asked.missed()
    return Course(alone, mark)
