"""What stands in the place of a masked value."""

import re
from decimal import Decimal
from functools import lru_cache
from hashlib import blake2b

import msgspec
from django.conf import settings

from history.documents.exactjson import Json, canonical

PREFIX = "masked:"
DIGITS = 16
SHOWN_DIGITS = 6
_TOKEN = re.compile(PREFIX + "[0-9a-f]{16}")


def document_key(entity: str, id: str) -> bytes:
    """The key of one document: equal values of two documents have different tokens."""
    installation = _installation_key(settings.SECRET_KEY)
    return blake2b(f"{entity}\0{id}".encode(), key=installation, digest_size=32).digest()


def token(key: bytes, mark: str, value: Json) -> str:
    """The token of a value, all of one length; 1, 1.0 and 1.00 have the same, 1 and "1" do not.
    key: of its document. mark: the marked path, so that two fields cannot be compared either."""
    text = b"%b\0%b" % (mark.encode(), canonical(_plain(value)))
    return PREFIX + blake2b(text, key=key, digest_size=DIGITS // 2).hexdigest()


def is_token(value: object) -> bool:
    return isinstance(value, str) and _TOKEN.fullmatch(value) is not None


def shown(text: str) -> str:
    """A token as screens show it; any other text as it is."""
    if not is_token(text):
        return text
    return f"•••• {text[len(PREFIX) : len(PREFIX) + SHOWN_DIGITS]}"


@lru_cache(maxsize=4)
def _installation_key(secret: str) -> bytes:
    # Hashed first: the key of BLAKE2 has 64 bytes at most.
    return blake2b(blake2b(secret.encode()).digest(), person=b"annals.masking").digest()


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
