"""A snapshot that is changed field by field and written as JSON without encoding it all again."""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from random import Random
from typing import Any

import msgspec

# Decimals are written as numbers, digit for digit: 17.90 stays 17.90.
encode = msgspec.json.Encoder(decimal_format="number").encode

_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_PAIRS = [one + other for one in _LETTERS for other in _LETTERS]
_PAIRS += _PAIRS[: 4096 - len(_PAIRS)]  # twelve bits pick one


def new_id(rng: Random) -> str:
    """22 letters and digits, as the source makes them."""
    bits = rng.getrandbits(132)
    pairs = []
    for _ in range(11):
        pairs.append(_PAIRS[bits & 4095])
        bits >>= 12
    return "".join(pairs)


@lru_cache(maxsize=4096)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()


def moment(nanoseconds: int) -> str:
    """ISO 8601 without an offset; 3, 6 or 9 fractional digits, as Java prints a local time."""
    seconds, fraction = divmod(nanoseconds, 1_000_000_000)
    digits = f"{fraction:09d}"
    while digits.endswith("000") and len(digits) > 3:
        digits = digits[:-3]
    return f"{_second(seconds)}.{digits}"


@lru_cache(maxsize=1024)
def _name(field: str) -> bytes:
    return encode(field) + b":"


class MutableSnapshot:
    """Top-level fields in the order they were first set, each kept encoded next to its value.

    After changing a nested value in place, set its field again: `s["documents"] = documents`.
    """

    __slots__ = ("_parts", "_values")

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._parts: dict[str, bytes] = {}

    def __getitem__(self, field: str) -> Any:
        return self._values[field]

    def __setitem__(self, field: str, value: Any) -> None:
        self._values[field] = value
        self._parts[field] = _name(field) + encode(value)

    def __contains__(self, field: str) -> bool:
        return field in self._values

    def __delitem__(self, field: str) -> None:
        del self._values[field], self._parts[field]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def update(self, values: dict[str, Any]) -> None:
        for field, value in values.items():
            self[field] = value

    def size(self) -> int:
        """Bytes of the fields as JSON, without the technical ones."""
        return sum(map(len, self._parts.values())) + len(self._parts) + 1

    def write(self, version: int, at: str, by: str) -> bytes:
        """The JSON object, with the technical fields that every change sets.

        `hash` covers only the other fields: a change of technical fields alone keeps it.
        """
        body = b",".join(self._parts.values())
        digest = blake2b(body, digest_size=8).hexdigest()
        technical = (
            f'"modifiedAt":"{at}","modifiedBy":"{by}","etag":"{version}-{digest[:6]}",'
            f'"hash":"{digest}"'
        )
        return b"{" + body + b"," + technical.encode() + b"}"
