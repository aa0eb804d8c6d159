"""A few fields of a document, taken out of its JSON text without parsing the rest. Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import msgspec

# A larger value is left out: no title is that long.
FIELD_BYTES = 8 * 1024
# A text that cannot be read without parsing it is small enough to be parsed.
_SMALL_BYTES = 64 * 1024

_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def select_fields(text: bytes, names: tuple[str, ...]) -> bytes:
    """Return the JSON text of a document with only these of its top-level fields.

    Large values are left out. The `null` of a deletion stays. Another text that is not an object
    stays if it is small, and becomes an empty object if it is not.
    """
    if text == b"null":
        return text
    try:
        values = _make_decoder(names)(text)
    except _UNREADABLE:
        return text if len(text) <= _SMALL_BYTES else b"{}"
    fields = (
        b"%b:%b" % (msgspec.json.encode(name), value)
        for name, value in zip(names, values, strict=True)
        if 0 < len(value) <= FIELD_BYTES
    )
    return b"{%b}" % b",".join(fields)


@cache
def _make_decoder(names: tuple[str, ...]) -> Callable[[bytes], list[bytes]]:
    attributes = [f"field{number}" for number in range(len(names))]
    empty = msgspec.Raw(b"")
    document = msgspec.defstruct(
        "Document",
        [(attribute, msgspec.Raw, empty) for attribute in attributes],
        rename=dict(zip(attributes, names, strict=True)),
    )
    decode = msgspec.json.Decoder(document).decode

    def read(text: bytes) -> list[bytes]:
        decoded = decode(text)
        return [bytes(getattr(decoded, attribute)) for attribute in attributes]

    return read
