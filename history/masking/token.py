"""What stands in the place of a masked value: equal for equal values of one field of one document,
and otherwise without meaning."""

from __future__ import annotations

import hmac
import re
from decimal import Decimal
from functools import lru_cache

import msgspec
from django.conf import settings

from history.exactjson import Json, canonical

PREFIX = "masked:"
DIGITS = 16
SHOWN_DIGITS = 6
_TOKEN = re.compile(PREFIX + "[0-9a-f]{16}")
_HASH = "sha256"


def document_key(entity: str, id: str) -> bytes:
    """The key of one document: equal values of two documents have different tokens, so that
    nobody can look for the other owner of a phone number."""
    return hmac.digest(_installation_key(settings.SECRET_KEY), f"{entity}\0{id}".encode(), _HASH)


def token(key: bytes, mark: str, value: Json) -> str:
    """The token of a value. key: of its document. mark: the marked path, so that two fields of one
    document cannot be compared either. All tokens have the same length.

    1, 1.0 and 1.00 have the same token, as the comparison takes them as equal; 1 and "1" do not.
    """
    text = b"\0".join((mark.encode(), canonical(_plain(value))))
    return PREFIX + hmac.digest(key, text, _HASH).hex()[:DIGITS]


def is_token(value: object) -> bool:
    return isinstance(value, str) and _TOKEN.fullmatch(value) is not None


def shown(text: str) -> str:
    """A token as screens show it; any other text as it is."""
    if not is_token(text):
        return text
    return f"•••• {text[len(PREFIX) : len(PREFIX) + SHOWN_DIGITS]}"


@lru_cache(maxsize=4)
def _installation_key(secret: str) -> bytes:
    return hmac.digest(secret.encode(), b"annals.masking", _HASH)


def _plain(value: Json) -> object:
    """The value with each number in the one form that all notations of it share."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, Decimal) or type(value) is int:
        return _number(Decimal(value))
    return value


def _number(value: Decimal) -> msgspec.Raw:
    # Not Decimal.normalize: it rounds to the precision of the context.
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits))
    plain = text.rstrip("0")
    if not plain:
        return msgspec.Raw(b"0")
    power = int(exponent) + len(text) - len(plain)
    return msgspec.Raw(f"{'-' * sign}{plain.lstrip('0')}e{power}".encode())
