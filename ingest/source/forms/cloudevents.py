"""CloudEvents 1.0 in Kafka: structured mode as JSON, and binary mode, whose attributes are headers
and whose value is the data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from history.json_pointer import segments
from history.kinds import Envelope as Declared
from ingest.source.envelope import RULES, Envelope, EnvelopeError, Name, WithoutValue
from ingest.source.forms.fields import Fields, Lookup, Value, named
from ingest.source.message import Message

_PREFIX: Final = "ce_"
_VERSION: Final = "1.0"
_STRUCTURED: Final = b"application/cloudevents"
_DATA: Final = "/data"
_SPECIFICATION: Final = "specversion"
_NULL: Final = Raw(b"null")


class CloudEvents:
    """ingest.source.envelope.Reader. An event without data has null instead."""

    key_is_id = True

    def __init__(self, declared: Declared) -> None:
        self._fields = Fields(declared)
        self.pointers: Mapping[str, str] = self._fields.pointers
        wanted = {**self.pointers, _SPECIFICATION: f"/{_SPECIFICATION}"}
        self._whole = Lookup({**wanted, "base64": "/data_base64"})
        of_data = {name: at for name, at in wanted.items() if (at + "/").startswith(_DATA + "/")}
        self._of_data = Lookup({name: at[len(_DATA) :] for name, at in of_data.items()})
        self._headers = {
            name: _PREFIX + segments(at)[0] for name, at in wanted.items() if name not in of_data
        }

    def without_value(self, message: Message) -> WithoutValue:
        return WithoutValue.READ if _is_binary(message) else WithoutValue.BAD

    def read(self, message: Message) -> Envelope:
        try:
            values = self._values(message)
        except msgspec.ValidationError as error:
            raise _fault(error, message) from None
        specification = values.pop(_SPECIFICATION, UNSET)
        if _text(specification) != _VERSION:
            raise EnvelopeError(
                "bad_field", f"`specversion` is missing or another one; it must be {_VERSION}"
            )
        if values.pop("base64", None) is not None:
            raise EnvelopeError(
                "bad_data", "the data is in `data_base64`; it must be a JSON object in `data`"
            )
        data = values.get("data", _NULL)
        return self._fields.envelope(values, data if isinstance(data, Raw) else UNSET)

    def name(self, message: Message) -> Name:
        return named(self._values(message))

    def _values(self, message: Message) -> dict[str, Value]:
        if not _is_binary(message):
            return self._whole(message.value or b"")
        headers = dict(message.headers)
        attributes: dict[str, Value] = {
            name: text.decode()
            for name, header in self._headers.items()
            if (text := headers.get(header)) is not None
        }
        return {**(self._of_data(message.value) if message.value else {}), **attributes}


def _fault(error: msgspec.ValidationError, message: Message) -> Exception:
    """What is wrong with a message in which nothing could be looked up."""
    if " - at `" in str(error):
        return error
    start = (message.value or b"").lstrip()[:1]
    if start == b"{" or _is_binary(message):
        return EnvelopeError("bad_data", f"`data` is no object; it must be {RULES['data']}")
    if start == b"[":
        return EnvelopeError(
            "bad_field", "the message is a batch of events; each event must be a message of its own"
        )
    return error


def _is_binary(message: Message) -> bool:
    """As the specification tells them apart: by the content type. A message without it is one in
    binary mode where the attributes are in headers."""
    there = False
    for name, value in message.headers:
        if name.lower() == "content-type":
            if (value or b"").lower().startswith(_STRUCTURED):
                return False
        elif name == _PREFIX + _SPECIFICATION:
            there = True
    return there


def _text(value: Value | UnsetType) -> str | None:
    """A text, in whichever way it came."""
    if isinstance(value, Raw):
        return bytes(value).decode().strip('"')
    return value if isinstance(value, str) else None
