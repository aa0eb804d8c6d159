"""Checks and decodes the answers of the old service.

Begin with `parse_answer_page`. If one version in an answer is wrong, the whole answer is refused.
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
    """Raised when an answer is not the timeline that was asked for.

    The message says what is wrong, and quotes nothing from the answer.
    """


# Texts without NUL, because they become parameters of SQL.
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
    """One page of a timeline of the old service."""

    versions: list[SourceRow]
    next_token: str | None  # None on the last page


def parse_answer_page(body: bytes, subject: TimelineSubject) -> AnswerPage:
    """Return the versions in the body of an answer.

    Args:
        subject: The document or application that was asked for.

    Raises:
        WrongAnswerError: The body is not a page of the timeline of `subject`.
    """
    try:
        body.decode()
        page = msgspec.json.decode(body, type=_Answer)
    except (ValueError, RecursionError) as error:
        raise WrongAnswerError(
            f"the answer is not a page of a timeline ({type(error).__name__})"
        ) from None
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
    """Make the SourceRow of one version in an answer.

    If `subject` is a child and the answer does not name its application, the row does not either.

    Raises:
        WrongAnswerError: The version is of another document or application, or not valid.
    """
    entity, id, application = subject.kind, row.id or subject.id, row.product_instance_id
    if entity is not None:
        if row.kind not in (None, entity.name) or id != subject.id:
            raise WrongAnswerError("the answer has a version of another document")
    else:
        entity = BY_NAME.get(row.kind or "")
        if entity is None or row.id is None:
            raise WrongAnswerError("a version in the answer has no kind or no id")
        application = application or subject.id
        is_own_version = entity is ROOT and id == subject.id
        if not (application == subject.id if entity.parent else is_own_version):
            raise WrongAnswerError("the answer has a version of another application")
    change_type = ChangeType[row.type]
    return SourceRow(
        version=row.version,
        updated_at=_parse_moment(row.updated_at),
        type=int(change_type),
        client_id=row.client_id,
        author=row.author or None,
        product_instance_id=application if entity.parent else None,
        data=_check_snapshot(bytes(row.entity), change_type),
        id=id,
        entity=entity,
        is_from_old_service=True,
    )


def _parse_moment(text: str) -> datetime:
    """Return updatedAt, truncated to microseconds. Without an offset it is UTC."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        raise WrongAnswerError("updatedAt of a version in the answer is not a time") from None


def _check_snapshot(text: bytes, change_type: ChangeType) -> bytes:
    """Return the snapshot if the message contract would accept it.

    Raises:
        WrongAnswerError: The contract would not accept it.
    """
    text = text or b"null"
    if text == b"null" and change_type is ChangeType.DELETE:
        return text
    # The text is well-formed JSON: msgspec has read it. It is not decoded here, because the values
    # of a hostile document could take gigabytes.
    if not text.startswith(b"{"):
        raise WrongAnswerError('a version in the answer has no snapshot in its field "entity"')
    if not can_be_stored(text):  # such as 1e999999999, a gigabyte when written out
        raise WrongAnswerError(
            "a snapshot in the answer has a JSON number that PostgreSQL cannot store"
        )
    return shorten_zeros(text)
