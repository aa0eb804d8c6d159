"""The message of a version, as Annals' contract has it. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final

from django.core.serializers.json import DjangoJSONEncoder

from outbox.errors import WrongChange

TYPES: Final = ("CREATE", "UPDATE", "DELETE")
IDEMPOTENCY_KEY: Final = "idempotency-key"


@dataclass(frozen=True, slots=True)
class Version:
    """A recorded version. document: entity/id. type: place in TYPES. recorded_at: never goes back
    within a document; updated_at: what the database's clock said. data: JSON text."""

    document: str
    version: int
    type: int
    recorded_at: datetime
    updated_at: datetime
    client_id: str
    author: str | None
    parent: str | None
    data: str

    @property
    def entity(self) -> str:
        """The kind of document."""
        return self.document.partition("/")[0]

    @property
    def id(self) -> str:
        """The document's id within its kind."""
        return self.document.partition("/")[2]

    @property
    def key(self) -> bytes:
        """Kafka's key."""
        return self.id.encode()

    @property
    def idempotency_key(self) -> bytes:
        """entity/id/version: two messages with the same key are the same version."""
        return f"{self.document}/{self.version}".encode()

    def value(self) -> bytes:
        """Kafka's value. The snapshot stays the text that was recorded."""
        envelope = {
            "id": self.id,
            "version": self.version,
            "type": TYPES[self.type],
            "updatedAt": self.updated_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "clientId": self.client_id,
        }
        if self.author is not None:
            envelope["author"] = self.author
        if self.parent is not None:
            envelope["productInstanceId"] = self.parent
        # The snapshot comes last, behind "data": without a space: readers find it there quickly.
        head = json.dumps(envelope, ensure_ascii=False, separators=(",", ":"))
        return f'{head[:-1]},"data":{self.data}}}'.encode()


NO_DATA = "null"
Snapshot = Mapping[str, Any]


def text(data: Snapshot | None, what: str) -> str:
    """The snapshot as JSON, as short as possible; decimals, dates and UUIDs are texts. what: names
    the document in the error. Raises WrongChange for what JSON or UTF-8 cannot hold."""
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
