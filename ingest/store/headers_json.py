"""Headers of a message as JSON that PostgreSQL can store, whatever is in their names."""

from __future__ import annotations

import re
from typing import Any

Headers = tuple[tuple[str, bytes | None], ...]

# What JSONB cannot hold. Bytes that are not UTF-8 are surrogates, as Python escapes them.
_NOT_STORABLE = re.compile("[\0\ud800-\udfff]")


def to_json(headers: Headers) -> list[list[Any]]:
    """Pairs of name and value. A value is hex, or None; a name is text, or {"hex": its bytes} if
    JSONB cannot hold it."""
    return [[_name(name), None if value is None else value.hex()] for name, value in headers]


def from_json(stored: list[list[Any]]) -> Headers:
    """The headers that to_json() was given."""
    return tuple(
        (
            name if isinstance(name, str) else _decode(bytes.fromhex(name["hex"])),
            None if value is None else bytes.fromhex(value),
        )
        for name, value in stored
    )


def storable_text(text: str) -> str:
    """The text with escapes for what PostgreSQL cannot store."""
    return _NOT_STORABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _name(name: str) -> str | dict[str, str]:
    if _NOT_STORABLE.search(name) is None:
        return name
    return {"hex": name.encode("utf-8", "surrogateescape").hex()}


def _decode(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
