"""Finds which version a bad message is, as far as it says so. Pure."""

import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from history.entities import BY_TOPIC
from history.record import CLIENT_ID_LENGTH, ID_LENGTH, MAX_VERSION
from ingest.source import decode
from ingest.source.envelope import PARENT, EnvelopeError, Reader, Shapes, json_text, key_text
from ingest.source.envelope import Place as JsonPlace
from ingest.source.forms import DECLARED
from ingest.source.message import Message

# The version is searched for in the first part of a message that is not JSON.
SEARCHED_BYTES = 65_536
_VERSION = re.compile(rb'"version"\s*:\s*("?[0-9]{1,10}"?)\s*[,}]')
_DIGITS = re.compile(rb'"?([0-9]{1,10})"?')


class Named(NamedTuple):
    """Kind of entity, id and version; empty, and None, where the message does not say."""

    entity: str
    id: str
    version: int | None


class Place(NamedTuple):
    """Where a version belongs in the history. application: the one that a message of a child names;
    empty where it does not say, and for what is no child. updated_at: aware, UTC; None where it
    cannot be read."""

    application: str
    updated_at: datetime | None


class _Loose(msgspec.Struct):
    """Four fields of the contract's envelope, whatever they are."""

    id: Raw | UnsetType = UNSET
    version: Raw | UnsetType = UNSET
    product_instance_id: Raw | UnsetType = msgspec.field(default=UNSET, name=PARENT)
    updated_at: Raw | UnsetType = msgspec.field(default=UNSET, name="updatedAt")


class _OfService(msgspec.Struct):
    clientId: str = ""  # noqa: N815 - its name in the message


_SERVICE = msgspec.json.Decoder(_OfService)
_DECODER = msgspec.json.Decoder(_Loose)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def named(message: Message, shapes: Shapes = DECLARED) -> Named:
    """The version that a message is. Reads what is there, also where a rule is broken: a version
    that is a text of digits counts, and the key is the id where the value has none."""
    entity = BY_TOPIC.get(message.topic)
    if entity is None:
        return Named("", "", None)
    shape = shapes.get(message.topic)
    id, version = _fields(message, shape)
    key = key_text(message.key) if shape is None else shape.id_of_key(message.key)
    return Named(entity.name, _id(id) or _fit(key), _number(version))


def read_place(message: Message, shapes: Shapes = DECLARED) -> Place:
    """Return where the version of a bad message belongs, as far as its JSON says so.

    A message that is not JSON says neither: of its bytes nobody knows which are in the envelope.
    """
    entity = BY_TOPIC.get(message.topic)
    if entity is None:
        return Place("", None)
    shape = shapes.get(message.topic)
    try:
        application, updated_at = _loose_place(message) if shape is None else shape.place(message)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, EnvelopeError):
        return Place("", None)
    named = _fit(application or "") if entity.parent is not None else ""
    return Place(named, _moment(updated_at))


def _loose_place(message: Message) -> JsonPlace:
    loose = _DECODER.decode(message.value or b"")
    return json_text(loose.product_instance_id), json_text(loose.updated_at)


def _moment(text: str | None) -> datetime | None:
    try:
        return None if text is None else _EPOCH + timedelta(microseconds=decode.moment(text))
    except (decode.Rejected, OverflowError):
        return None


def service(message: Message, shapes: Shapes = DECLARED) -> str:
    """Return which service sent a message: as the message says, or as its kind declares for all of
    its messages; empty where neither does."""
    shape = shapes.get(message.topic)
    try:
        if shape is None:
            found: object = _SERVICE.decode(message.value or b"").clientId
        else:
            found = shape.client_id(message)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, EnvelopeError):
        return ""
    return _fit(found, CLIENT_ID_LENGTH) if isinstance(found, str) else ""


def _fields(message: Message, shape: Reader | None) -> tuple[bytes, bytes]:
    """The JSON texts of id and version; empty where there is none."""
    value = message.value or b""
    try:
        if shape is None:
            loose = _DECODER.decode(value)
            both = (loose.id, loose.version)
        else:
            both = shape.name(message)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, EnvelopeError):
        found = _VERSION.search(value, 0, SEARCHED_BYTES) if shape is None else None
        return b"", found[1] if found else b""
    id, version = (b"" if each is UNSET else bytes(each) for each in both)
    return id, version


def _id(text: bytes) -> str:
    return _fit(json_text(Raw(text)) or "") if text else ""


def _fit(text: str, longest: int = ID_LENGTH) -> str:
    """The text; empty where it cannot be an id or a service, or cannot be stored."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return ""
    return text if 0 < len(text) <= longest and "\0" not in text else ""


def _number(text: bytes) -> int | None:
    found = _DIGITS.fullmatch(text)
    number = int(found[1]) if found else MAX_VERSION + 1
    return number if number <= MAX_VERSION else None
