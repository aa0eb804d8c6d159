"""Reads a few top-level fields of a snapshot out of its JSON text without parsing the rest."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import msgspec

# Larger values are left out. The fields are used for titles, which are shorter.
FIELD_BYTES = 8 * 1024
# A text up to this size is returned whole if its fields cannot be selected.
_SMALL_BYTES = 64 * 1024

_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def select_fields(text: bytes, names: tuple[str, ...]) -> bytes:
    """Return the JSON text of a snapshot with only the top-level fields `names`.

    A value larger than FIELD_BYTES is left out. The `null` of a deletion is returned unchanged. Any
    other text that is not an object is returned unchanged if it is small; otherwise the result is
    an empty object.
    """
    if text == b"null":
        return text
    try:
        values = _make_field_reader(names)(text)
    except _UNREADABLE:
        return text if len(text) <= _SMALL_BYTES else b"{}"
    fields = (
        b"%b:%b" % (msgspec.json.encode(name), value)
        for name, value in zip(names, values, strict=True)
        if 0 < len(value) <= FIELD_BYTES
    )
    return b"{%b}" % b",".join(fields)


def is_readable_name(name: str) -> bool:
    """Return whether `read_field` can look for a field of this name."""
    return not any(character in '"\\' or character < " " for character in name)


def read_field(text: bytes, name: str) -> bytes | None:
    """Return the JSON text of one top-level field, or b"" if the snapshot lacks it.

    None if the snapshot is not an object or cannot be read.

    Args:
        name: See is_readable_name.
    """
    try:
        return _make_field_reader((name,))(text)[0]
    except _UNREADABLE:
        return None


@lru_cache(maxsize=256)  # limited, because requests can choose the names
def _make_field_reader(names: tuple[str, ...]) -> Callable[[bytes], list[bytes]]:
    """Make a function that returns the JSON text of each field; b"" if the snapshot lacks it."""
    attributes = [f"field{number}" for number in range(len(names))]  # a name may be any text
    empty = msgspec.Raw(b"")
    document = msgspec.defstruct(
        "Document",
        [(attribute, msgspec.Raw, empty) for attribute in attributes],
        rename=dict(zip(attributes, names, strict=True)),
    )
    decode = msgspec.json.Decoder(document).decode

    def read_fields(text: bytes) -> list[bytes]:
        decoded = decode(text)
        return [bytes(getattr(decoded, attribute)) for attribute in attributes]

    return read_fields
