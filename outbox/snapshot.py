"""Snapshots as JSON text: what a message has as its data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder

from outbox.errors import WrongChange

NO_DATA = "null"
Snapshot = Mapping[str, Any]


def text(data: Snapshot | None, what: str) -> str:
    """The snapshot as JSON, as short as possible. Decimals, dates and UUIDs are texts, as Django's
    encoder writes them. what: names the document in the error.

    Raises WrongChange for what JSON or UTF-8 cannot hold.
    """
    if data is None:
        return NO_DATA
    if not isinstance(data, Mapping):
        raise WrongChange(f"{what}: the snapshot must be a mapping, not {type(data).__name__}")
    try:
        written = json.dumps(
            dict(data),
            cls=DjangoJSONEncoder,
            ensure_ascii=False,
            allow_nan=False,
            separators=(",", ":"),
        )
        written.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise WrongChange(f"{what}: the snapshot is no JSON: {error}") from error
    return written


def digest(written: str, parent: str | None, deleted: bool) -> bytes:
    """Equal for two versions exactly if the second says nothing new."""
    return blake2b(f"{int(deleted)}{parent or ''}\n{written}".encode(), digest_size=16).digest()
