r"""Stores the documents that JSONB cannot hold: those with a NUL character in a text.

PostgreSQL refuses `\u0000` in JSONB. Such a document is stored as a JSON string that contains its
JSON text; every other document is an object or null, so the two cannot be confused.
"""

from __future__ import annotations

import re

import msgspec

from history.exactjson import canonical, loads

Buffer = bytes | bytearray | memoryview
QUOTE = ord('"')
_BACKSLASH, _ESCAPE = b"\\", rb"\u0000"
# The backslash of the escape is not itself escaped.
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def may_have_nul(text: bytes) -> bool:
    """False for nearly all texts, at the cost of a search for one byte."""
    return _BACKSLASH in text and _ESCAPE in text


def to_store(text: bytes) -> bytes:
    """The JSON text to store for a document: the text itself if it has no NUL.

    Otherwise its keys are sorted and its spaces removed first, as JSONB would do, so that two texts
    of one document are stored equally.
    """
    if _NUL.search(text) is None:
        return text
    try:
        inner = canonical(loads(text))
    except ValueError:  # PostgreSQL refuses it
        return text
    return msgspec.json.encode(inner.decode())


def from_store(text: bytes) -> bytes:
    """The JSON text of a document, given the text of the stored JSONB."""
    if text[:2] != b'"{':
        return text
    return msgspec.json.decode(text, type=str).encode()


def line_from_store(line: Buffer) -> Buffer:
    """The same for a line of JSON that ends with `,"data":`, the text of the stored JSONB, and
    `}` and a line feed. Costs a look at one byte for a document without NUL."""
    if line[-3] != QUOTE:
        return line
    head, name, stored = bytes(line).partition(b',"data":')
    return head + name + from_store(stored[:-2]) + stored[-2:]
