"""What the old service answers: believed as a whole, or not at all.

WrongAnswerError   it is not the timeline that was asked for
"""

from datetime import UTC, datetime
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from history.documents.jsonb import can_be_stored, shortened
from history.entities import BY_NAME, ROOT
from history.record import (
    AUTHOR_LENGTH,
    CLIENT_ID_LENGTH,
    ID_LENGTH,
    MAX_VERSION,
    ChangeType,
)
from history.versions import Subject, VersionRow

TOKEN_LENGTH: Final = 8_000


class WrongAnswerError(Exception):
    """The message says what is wrong and quotes nothing of the answer."""


# In names no NUL: PostgreSQL is asked for them.
_Id = Annotated[str, Meta(min_length=1, max_length=ID_LENGTH, pattern=r"^[^\x00]*$")]
_Client = Annotated[str, Meta(min_length=1, max_length=CLIENT_ID_LENGTH, pattern=r"^[^\x00]*$")]
_Author = Annotated[str, Meta(max_length=AUTHOR_LENGTH, pattern=r"^[^\x00]*$")]


class _Row(msgspec.Struct, frozen=True, rename="camel"):
    version: Annotated[int, Meta(ge=0, le=MAX_VERSION)]
    type: Literal["CREATE", "UPDATE", "DELETE"]
    updated_at: str
    client_id: _Client
    author: _Author | None = None
    entity: msgspec.Raw = msgspec.Raw(b"")
    kind: str | None = None
    id: _Id | None = None
    product_instance_id: _Id | None = None


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    history: list[_Row]
    next_page_token: Annotated[str, Meta(min_length=1, max_length=TOKEN_LENGTH)] | None = None


class _Answer(msgspec.Struct, frozen=True):
    status: Literal["success"]
    data: _Data


class _Error(msgspec.Struct, frozen=True):
    code: str


class _Failure(msgspec.Struct, frozen=True):
    status: Literal["error"]
    error: _Error


class AnswerPage(NamedTuple):
    """One page. next_token: None on the last one."""

    versions: list[VersionRow]
    next_token: str | None


def part(body: bytes, subject: Subject) -> AnswerPage:
    """The versions in the body of an answer. Raises WrongAnswerError."""
    try:
        body.decode()
        found = msgspec.json.decode(body, type=_Answer)
    except (ValueError, RecursionError) as error:
        raise WrongAnswerError(f"it is no page of a timeline ({type(error).__name__})") from None
    versions = [_version(row, subject) for row in found.data.history]
    return AnswerPage(versions, found.data.next_page_token)


def says_nothing_there(body: bytes) -> bool:
    """Whether the body of a 404 says that the old service has no such document."""
    try:
        found = msgspec.json.decode(body, type=_Failure)
    except (ValueError, RecursionError):
        return False
    return found.error.code not in ("unknown_address", "unknown_entity")


def _version(row: _Row, subject: Subject) -> VersionRow:
    """With its application as the answer says it; None for a child of which it does not."""
    entity, id, application = subject.kind, row.id or subject.id, row.product_instance_id
    if entity is not None:
        if row.kind not in (None, entity.name) or id != subject.id:
            raise WrongAnswerError("it has a version of another document")
    else:
        entity = BY_NAME.get(row.kind or "")
        if entity is None or row.id is None:
            raise WrongAnswerError("a version does not say of what it is: kind and id")
        application = application or subject.id
        own = entity is ROOT and id == subject.id
        if not (application == subject.id if entity.parent else own):
            raise WrongAnswerError("it has a version of another application")
    change = ChangeType[row.type]
    data = _snapshot(bytes(row.entity), change)
    return VersionRow(
        *(row.version, _moment(row.updated_at), int(change), row.client_id, row.author or None),
        *(application if entity.parent else None, data, id, entity, True),
    )


def _moment(text: str) -> datetime:
    """updatedAt, cut to microseconds; without an offset it is UTC."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        raise WrongAnswerError("a version has no moment in updatedAt") from None


def _snapshot(text: bytes, change: ChangeType) -> bytes:
    """The snapshot, which the message contract would accept."""
    text = text or b"null"
    if text == b"null" and change is ChangeType.DELETE:
        return text
    # Well-formed, or `part` had refused it. The value of a hostile one would take gigabytes.
    if not text.startswith(b"{"):
        raise WrongAnswerError("a version has no snapshot in entity")
    if not can_be_stored(text):  # a number of eleven bytes can need a gigabyte to be shown
        raise WrongAnswerError("a snapshot has a number that no store can have")
    return shortened(text)
