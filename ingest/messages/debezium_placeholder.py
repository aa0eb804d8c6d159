"""Recognises Debezium's placeholder for a value that the source database did not log."""

import base64
import hashlib
import json
import uuid
from typing import Final

from history.documents import exactjson
from history.documents.exactjson import Json

DEFAULT_PLACEHOLDER: Final = "__debezium_unavailable_value"
_HEX_PREFIX: Final = "hex:"
# The placeholders of geometry, geography and point columns. They are the same for all connectors.
_GEOMETRIES: Final = frozenset(
    base64.b64encode(bytes.fromhex(wkb)).decode()
    for wkb in (
        "0101000020E6100000000000FC83D797C1000000FC83D797C1",
        "0101000020E61000000C21E7FDFF7F66401842CEFBFF7F5640",
        "0101000000000000FC83D797C1000000FC83D797C1",
    )
)


class Placeholder:
    """The placeholder of one connector, in all forms that a value can have.

    PostgreSQL does not log a large value that an UPDATE did not change, and Oracle does not log a
    LOB. Instead of such a value, Debezium writes `unavailable.value.placeholder` in the type of the
    column: a text, bytes in base64 or hexadecimal digits, or a map of the text to itself. In an
    array, Debezium writes the text, its bytes, a UUID of the bytes, or one number for each byte.

    In an array of booleans, Debezium writes one `true` for each byte. This is not recognised,
    because a real array can look the same.
    """

    def __init__(self, setting: str) -> None:
        """Compute the forms that the placeholder can have in a message: texts and arrays.

        Args:
            setting: The connector's `unavailable.value.placeholder`: either a text, or `hex:`
                followed by hexadecimal digits.

        Raises:
            ValueError: The digits after `hex:` are not hexadecimal.
        """
        octets = setting.encode()
        if setting.startswith(_HEX_PREFIX):
            octets = bytes.fromhex(setting.removeprefix(_HEX_PREFIX))
        self._text = octets.decode(errors="replace")
        digest = hashlib.md5(octets, usedforsecurity=False).digest()
        self._texts = {
            self._text,
            base64.b64encode(octets).decode(),
            base64.urlsafe_b64encode(octets).decode(),
            base64.urlsafe_b64encode(octets).decode().rstrip("="),
            octets.hex(),
            octets.hex().upper(),
            str(uuid.UUID(bytes=digest, version=3)),
            # A map that is written as JSON text, and the placeholder itself as JSON text.
            json.dumps({self._text: self._text}, ensure_ascii=False, separators=(",", ":")),
            json.dumps(self._text, ensure_ascii=False),
        }
        numbers: list[Json] = [octet - 256 if octet > 127 else octet for octet in octets]
        one_byte: list[Json] = [base64.b64encode(bytes([octet])).decode() for octet in octets]
        variable: list[Json] = [{"scale": 0, "value": value} for value in one_byte]
        self._arrays: tuple[list[Json], ...] = (numbers, one_byte, variable)

    def is_in(self, row: bytes) -> bool:
        """Return whether a value of this row, at any depth, is the placeholder."""
        try:
            value = exactjson.loads(row)
        except ValueError:
            # The row is not JSON, or is nested too deep. The decoder will refuse it for this,
            # unless its bytes contain the placeholder.
            return json.dumps(self._text, ensure_ascii=False).encode() in row
        return self._is_in_value(value)

    def _is_in_value(self, value: Json) -> bool:
        if isinstance(value, str):
            return value in self._texts
        if isinstance(value, list):
            return value in self._arrays or any(map(self._is_in_value, value))
        if isinstance(value, dict):
            return value.get("wkb") in _GEOMETRIES or any(map(self._is_in_value, value.values()))
        return False
