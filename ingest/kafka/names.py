"""Finds out which version a bad message is, as far as it can be read. Pure."""

import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from history.documents.record import CLIENT_ID_LENGTH, ID_LENGTH, MAX_VERSION
from history.kinds.entities import BY_TOPIC
from ingest.messages import decode
from ingest.messages.envelope import (
    PARENT,
    EnvelopeParser,
    EnvelopeParsers,
    RawPlace,
    json_text,
    key_text,
)
from ingest.messages.forms import DECLARED_PARSERS
from ingest.messages.message import Message
from ingest.messages.rejection import RejectedMessage

# How many bytes of a message that is not JSON are searched for the version.
SEARCHED_BYTES = 65_536
_VERSION = re.compile(rb'"version"\s*:\s*("?[0-9]{1,10}"?)\s*[,}]')
_DIGITS = re.compile(rb'"?([0-9]{1,10})"?')


class MessageIdentity(NamedTuple):
    """Kind of entity, id and version; empty or None where the message does not say."""

    entity: str
    id: str
    version: int | None


class Place(NamedTuple):
    """Where a version belongs in the history."""

    application: str  # that a message of a child names; empty without one, and for other entities
    updated_at: datetime | None  # aware, in UTC; None if it cannot be read


class _IdentityFields(msgspec.Struct):
    """The raw values of four fields of the contract's envelope."""

    id: Raw | UnsetType = UNSET
    version: Raw | UnsetType = UNSET
    product_instance_id: Raw | UnsetType = msgspec.field(default=UNSET, name=PARENT)
    updated_at: Raw | UnsetType = msgspec.field(default=UNSET, name="updatedAt")


class _ServiceField(msgspec.Struct):
    clientId: str = ""  # noqa: N815 - its name in the message


_SERVICE = msgspec.json.Decoder(_ServiceField)
_DECODER = msgspec.json.Decoder(_IdentityFields)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def identify_message(
    message: Message, shapes: EnvelopeParsers = DECLARED_PARSERS
) -> MessageIdentity:
    """Return which version a message is, also where it breaks a rule of the contract.

    A version that is a text of digits counts. Where the value has no id, the key is the id.
    """
    entity = BY_TOPIC.get(message.topic)
    if entity is None:
        return MessageIdentity("", "", None)
    shape = shapes.get(message.topic)
    id, version = _read_identity(message, shape)
    key = key_text(message.key) if shape is None else shape.id_of_key(message.key)
    return MessageIdentity(entity.name, _parse_id(id) or _accept_text(key), _parse_version(version))


def read_place(message: Message, shapes: EnvelopeParsers = DECLARED_PARSERS) -> Place:
    """Return where the version of a bad message belongs, as far as it can be read.

    A message that is not JSON has no place: its bytes do not tell what is in the envelope.
    """
    entity = BY_TOPIC.get(message.topic)
    if entity is None:
        return Place("", None)
    shape = shapes.get(message.topic)
    try:
        application, updated_at = (
            _read_contract_place(message) if shape is None else shape.place(message)
        )
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, RejectedMessage):
        return Place("", None)
    parent_id = _accept_text(application or "") if entity.parent is not None else ""
    return Place(parent_id, _parse_moment(updated_at))


def _read_contract_place(message: Message) -> RawPlace:
    fields = _DECODER.decode(message.value or b"")
    return json_text(fields.product_instance_id), json_text(fields.updated_at)


def _parse_moment(text: str | None) -> datetime | None:
    try:
        return None if text is None else _EPOCH + timedelta(microseconds=decode.parse_time(text))
    except (RejectedMessage, OverflowError):
        return None


def identify_service(message: Message, shapes: EnvelopeParsers = DECLARED_PARSERS) -> str:
    """Return the service that sent a message, or an empty text if it is not known.

    The message names it, or the kind declares it for all of its messages.
    """
    shape = shapes.get(message.topic)
    try:
        if shape is None:
            service: object = _SERVICE.decode(message.value or b"").clientId
        else:
            service = shape.client_id(message)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, RejectedMessage):
        return ""
    return _accept_text(service, CLIENT_ID_LENGTH) if isinstance(service, str) else ""


def _read_identity(message: Message, shape: EnvelopeParser | None) -> tuple[bytes, bytes]:
    """Return the JSON texts of id and version, each empty if it is absent."""
    value = message.value or b""
    try:
        if shape is None:
            loose = _DECODER.decode(value)
            fields = (loose.id, loose.version)
        else:
            fields = shape.name(message)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, RejectedMessage):
        match = _VERSION.search(value, 0, SEARCHED_BYTES) if shape is None else None
        return b"", match[1] if match else b""
    id, version = (b"" if part is UNSET else bytes(part) for part in fields)
    return id, version


def _parse_id(text: bytes) -> str:
    return _accept_text(json_text(Raw(text)) or "") if text else ""


def _accept_text(text: str, longest: int = ID_LENGTH) -> str:
    """Return the text, or an empty one if it cannot be an id or a service or cannot be stored."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return ""
    return text if 0 < len(text) <= longest and "\0" not in text else ""


def _parse_version(text: bytes) -> int | None:
    match = _DIGITS.fullmatch(text)
    number = int(match[1]) if match else MAX_VERSION + 1
    return number if number <= MAX_VERSION else None
