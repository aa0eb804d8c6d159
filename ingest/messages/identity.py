"""Finds out which version a bad message brought.

Begin with `identify_message`. The functions do not raise errors for bad messages. Instead, a value
that cannot be read is empty or None.
"""

import re
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from history.documents.record import CLIENT_ID_LENGTH, ID_LENGTH, MAX_VERSION
from history.kinds.entities import BY_TOPIC
from ingest.messages.decode import parse_time
from ingest.messages.envelope import (
    PARENT,
    EnvelopeParser,
    EnvelopeParsers,
    RawParentAndTime,
    parse_key_text,
    parse_text,
)
from ingest.messages.forms import DECLARED_PARSERS
from ingest.messages.message import KafkaMessage
from ingest.messages.rejection import RejectedMessageError

# How many bytes of a message are searched: for the version if the message is not JSON, and for
# `updatedAt` in each bad message.
SEARCHED_BYTES = 65_536
_VERSION = re.compile(rb'"version"\s*:\s*("?[0-9]{1,10}"?)\s*[,}]')
_UPDATED_AT = re.compile(rb'"updatedAt"\s*:\s*"([^"\\]{10,40})"')
_DIGITS = re.compile(rb'"?([0-9]{1,10})"?')


class MessageIdentity(NamedTuple):
    """The version that a message brought. A part that cannot be read is empty or None."""

    entity: str  # the name of the kind
    id: str
    version: int | None


def identify_message(
    message: KafkaMessage, parsers: EnvelopeParsers = DECLARED_PARSERS
) -> MessageIdentity:
    """Return which version a message brought, even if the message breaks a rule of the contract.

    The version may also be a JSON string of digits. If the value has no id, the key is the id.

    Args:
        parsers: The parsers of declared envelopes, by topic.
    """
    entity = BY_TOPIC.get(message.topic)
    if entity is None:
        return MessageIdentity("", "", None)
    parser = parsers.get(message.topic)
    id, version = _read_id_and_version(message, parser)
    key = parse_key_text(message.key) if parser is None else parser.parse_key_id(message.key)
    return MessageIdentity(
        entity.name, _parse_id(id) or _accept_text(key, ID_LENGTH), _parse_version(version)
    )


class _IdentityFields(msgspec.Struct):
    """The undecoded id, version, application id and moment in the contract's envelope."""

    id: Raw | UnsetType = UNSET
    version: Raw | UnsetType = UNSET
    product_instance_id: Raw | UnsetType = msgspec.field(default=UNSET, name=PARENT)
    updated_at: Raw | UnsetType = msgspec.field(default=UNSET, name="updatedAt")


_IDENTITY_DECODER = msgspec.json.Decoder(_IdentityFields)


def _read_id_and_version(
    message: KafkaMessage, parser: EnvelopeParser | None
) -> tuple[bytes, bytes]:
    """Return the id and the version as JSON texts. A text is empty if the value is missing."""
    value = message.value or b""
    try:
        if parser is None:
            fields = _IDENTITY_DECODER.decode(value)
            raw_id, raw_version = fields.id, fields.version
        else:
            raw_id, raw_version = parser.get_identity(message)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, RejectedMessageError):
        match = _VERSION.search(value, 0, SEARCHED_BYTES) if parser is None else None
        return b"", match[1] if match else b""
    id, version = (b"" if raw is UNSET else bytes(raw) for raw in (raw_id, raw_version))
    return id, version


def _parse_id(text: bytes) -> str:
    return _accept_text(parse_text(Raw(text)) or "", ID_LENGTH) if text else ""


def _parse_version(text: bytes) -> int | None:
    match = _DIGITS.fullmatch(text)
    number = int(match[1]) if match else MAX_VERSION + 1
    return number if number <= MAX_VERSION else None


def _accept_text(text: str, max_length: int) -> str:
    """Return the text, or an empty text if PostgreSQL cannot store it or its length is wrong."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return ""
    return text if 0 < len(text) <= max_length and "\0" not in text else ""


class ParentAndTime(NamedTuple):
    """The application and the moment of a version."""

    application: str  # the application id of a child; "" if not named, or not a child
    updated_at: datetime | None  # aware, in UTC; None if it cannot be read


def find_parent_and_time(
    message: KafkaMessage, parsers: EnvelopeParsers = DECLARED_PARSERS
) -> ParentAndTime:
    """Return the application and the moment of the version in a bad message.

    The application id is "" if it cannot be read, and the moment is None if it cannot be read.
    Neither is read if the message is not JSON: its bytes do not show whether a field belongs to the
    envelope or to the snapshot.

    Args:
        parsers: The parsers of declared envelopes, by topic.
    """
    entity = BY_TOPIC.get(message.topic)
    if entity is None:
        return ParentAndTime("", None)
    parser = parsers.get(message.topic)
    try:
        if parser is None:
            application, updated_at = _read_contract_parent_and_time(message)
        else:
            application, updated_at = parser.get_parent_and_time(message)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, RejectedMessageError):
        return ParentAndTime("", None)
    has_parent = entity.parent is not None
    return ParentAndTime(
        _accept_text(application or "", ID_LENGTH) if has_parent else "",
        _parse_moment(updated_at),
    )


def _read_contract_parent_and_time(message: KafkaMessage) -> RawParentAndTime:
    fields = _IDENTITY_DECODER.decode(message.value or b"")
    return RawParentAndTime(parse_text(fields.product_instance_id), parse_text(fields.updated_at))


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _parse_moment(text: str | None) -> datetime | None:
    try:
        return None if text is None else _EPOCH + timedelta(microseconds=parse_time(text))
    except (RejectedMessageError, OverflowError):
        return None


class _ServiceField(msgspec.Struct):
    clientId: str = ""  # noqa: N815 - the name of the field in a message


_SERVICE_DECODER = msgspec.json.Decoder(_ServiceField)


def identify_service(message: KafkaMessage, parsers: EnvelopeParsers = DECLARED_PARSERS) -> str:
    """Return the service that made the version in a message, or an empty text if it is not known.

    The message names the service, unless the kind declares one service for all messages.

    Args:
        parsers: The parsers of declared envelopes, by topic.
    """
    parser = parsers.get(message.topic)
    try:
        if parser is None:
            service: object = _SERVICE_DECODER.decode(message.value or b"").clientId
        else:
            service = parser.get_client_id(message)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, RejectedMessageError):
        return ""
    return _accept_text(service, CLIENT_ID_LENGTH) if isinstance(service, str) else ""


def guess_day(value: bytes | None) -> date | None:
    """Return the UTC day of the first `updatedAt` in the bytes, or None if there is none."""
    match = _UPDATED_AT.search(value or b"", 0, SEARCHED_BYTES)
    if match is None:
        return None
    try:
        moment = datetime.fromisoformat(match[1].decode("ascii"))
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).date()
    except (ValueError, OverflowError):
        return None
