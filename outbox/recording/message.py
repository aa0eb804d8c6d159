"""Encodes the Kafka message of a version as Annals' contract defines it."""

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
class RecordedVersion:
    """A recorded version of a document.

    Attributes:
        document: The document, as `entity/id`.
        type: The index in TYPES.
        recorded_at: The moment of recording. It never decreases within a document.
        updated_at: The time of the database's clock at the change. It can decrease.
        data: The snapshot as JSON text.
    """

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
        """The kind of the document."""
        return self.document.partition("/")[0]

    @property
    def id(self) -> str:
        """The id of the document within its kind."""
        return self.document.partition("/")[2]

    @property
    def key(self) -> bytes:
        """The key of the Kafka message."""
        return self.id.encode()

    @property
    def idempotency_key(self) -> bytes:
        """The text `entity/id/version`. Two messages with the same text are the same version."""
        return f"{self.document}/{self.version}".encode()

    def encode_value(self) -> bytes:
        """Return the value of the Kafka message, with the snapshot's recorded text unchanged."""
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
        # The snapshot comes last, after `"data":` without a space, so that the consumer finds
        # it quickly.
        head = json.dumps(envelope, ensure_ascii=False, separators=(",", ":"))
        return f'{head[:-1]},"data":{self.data}}}'.encode()


NO_DATA = "null"
Snapshot = Mapping[str, Any]


def encode_snapshot(data: Snapshot | None, document_name: str) -> str:
    """Return a snapshot as JSON without spaces. Decimals, dates and UUIDs become texts.

    Args:
        data: The snapshot; None for a deletion.
        document_name: The name of the document for the error.

    Raises:
        WrongChange: The snapshot has a value that JSON or UTF-8 cannot hold.
    """
    if data is None:
        return NO_DATA
    if not isinstance(data, Mapping):
        raise WrongChange(
            f"{document_name}: the snapshot must be a mapping, not {type(data).__name__}"
        )
    try:
        encoded = json.dumps(
            dict(data),
            cls=DjangoJSONEncoder,
            ensure_ascii=False,
            allow_nan=False,
            separators=(",", ":"),
        )
        encoded.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise WrongChange(f"{document_name}: the snapshot is not JSON: {error}") from error
    return encoded


def compute_digest(snapshot: str, parent: str | None, deleted: bool) -> bytes:
    """Return a digest of a version. If nothing changed, the next version has an equal digest."""
    return blake2b(f"{int(deleted)}{parent or ''}\n{snapshot}".encode(), digest_size=16).digest()
