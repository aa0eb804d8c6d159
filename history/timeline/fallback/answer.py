"""Checks what the old service answers. A timeline is believed as a whole, or not at all.

WrongAnswerError   The answer is not the timeline that was asked for.
"""

from datetime import UTC, datetime
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from history.documents.jsonb import can_be_stored, shorten_zeros
from history.documents.record import (
    AUTHOR_LENGTH,
    CLIENT_ID_LENGTH,
    ID_LENGTH,
    MAX_VERSION,
    ChangeType,
)
from history.kinds.entities import BY_NAME, ROOT
from history.store.versions import SourceRow, TimelineSubject

TOKEN_LENGTH: Final = 8_000


class WrongAnswerError(Exception):
    """The message says what is wrong and quotes nothing from the answer."""


# In names no NUL: PostgreSQL is asked for them.
_Id = Annotated[str, Meta(min_length=1, max_length=ID_LENGTH, pattern=r"^[^\x00]*$")]
_Client = Annotated[str, Meta(min_length=1, max_length=CLIENT_ID_LENGTH, pattern=r"^[^\x00]*$")]
_Author = Annotated[str, Meta(max_length=AUTHOR_LENGTH, pattern=r"^[^\x00]*$")]


class _AnswerRow(msgspec.Struct, frozen=True, rename="camel"):
    version: Annotated[int, Meta(ge=0, le=MAX_VERSION)]
    type: Literal["CREATE", "UPDATE", "DELETE"]
    updated_at: str
    client_id: _Client
    author: _Author | None = None
    entity: msgspec.Raw = msgspec.Raw(b"")
    kind: str | None = None
    id: _Id | None = None
    product_instance_id: _Id | None = None


class _AnswerData(msgspec.Struct, frozen=True, rename="camel"):
    history: list[_AnswerRow]
    next_page_token: Annotated[str, Meta(min_length=1, max_length=TOKEN_LENGTH)] | None = None


class _Answer(msgspec.Struct, frozen=True):
    status: Literal["success"]
    data: _AnswerData


class _FailureError(msgspec.Struct, frozen=True):
    code: str


class _Failure(msgspec.Struct, frozen=True):
    status: Literal["error"]
    error: _FailureError


class AnswerPage(NamedTuple):
    """One page of a timeline. `next_token` is None on the last one."""

    versions: list[SourceRow]
    next_token: str | None


def parse_answer_page(body: bytes, subject: TimelineSubject) -> AnswerPage:
    """Return the versions in the body of an answer.

    Raises:
        WrongAnswerError: The body is not a page of the timeline that was asked for.
    """
    try:
        body.decode()
        page = msgspec.json.decode(body, type=_Answer)
    except (ValueError, RecursionError) as error:
        raise WrongAnswerError(f"it is no page of a timeline ({type(error).__name__})") from None
    versions = [_make_row(row, subject) for row in page.data.history]
    return AnswerPage(versions, page.data.next_page_token)


def has_no_document(body: bytes) -> bool:
    """Return whether the body of a 404 says that the old service has no such document."""
    try:
        failure = msgspec.json.decode(body, type=_Failure)
    except (ValueError, RecursionError):
        return False
    return failure.error.code not in ("unknown_address", "unknown_entity")


def _make_row(row: _AnswerRow, subject: TimelineSubject) -> SourceRow:
    """Make a row of a version, with the application that the answer names; None if it names
    none.
    """
    entity, id, application = subject.kind, row.id or subject.id, row.product_instance_id
    if entity is not None:
        if row.kind not in (None, entity.name) or id != subject.id:
            raise WrongAnswerError("it has a version of another document")
    else:
        entity = BY_NAME.get(row.kind or "")
        if entity is None or row.id is None:
            raise WrongAnswerError("a version does not say of what it is: kind and id")
        application = application or subject.id
        is_own_version = entity is ROOT and id == subject.id
        if not (application == subject.id if entity.parent else is_own_version):
            raise WrongAnswerError("it has a version of another application")
    change = ChangeType[row.type]
    data = _check_snapshot(bytes(row.entity), change)
    return SourceRow(
        *(
            row.version,
            _parse_moment(row.updated_at),
            int(change),
            row.client_id,
            row.author or None,
        ),
        *(application if entity.parent else None, data, id, entity, True),
    )


def _parse_moment(text: str) -> datetime:
    """Return updatedAt, cut to microseconds. Without an offset it is UTC."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        raise WrongAnswerError("a version has no moment in updatedAt") from None


def _check_snapshot(text: bytes, change: ChangeType) -> bytes:
    """Return the snapshot if the message contract would accept it."""
    text = text or b"null"
    if text == b"null" and change is ChangeType.DELETE:
        return text
    # Well-formed, or `part` had refused it. The value of a hostile one would take gigabytes.
    if not text.startswith(b"{"):
        raise WrongAnswerError("a version has no snapshot in entity")
    if not can_be_stored(text):  # a number of eleven bytes can need a gigabyte to be shown
        raise WrongAnswerError("a snapshot has a number that no store can have")
    return shorten_zeros(text)
