"""A version that is ready to be stored in a *_aud table, and the limits of its columns."""

from enum import IntEnum

import msgspec

ID_LENGTH = 32
CLIENT_ID_LENGTH = 64
AUTHOR_LENGTH = 64
MAX_VERSION = 2_147_483_647
# The most offsets that a row of ingest_unstored covers. The limit lets an index find an offset.
UNSTORED_SPAN = 100_000


class ChangeType(IntEnum):
    """What a version did to its document: the values of the column `type`."""

    CREATE = 0
    UPDATE = 1
    DELETE = 2


class Record(msgspec.Struct, frozen=True, gc=False):
    """One version of one document, checked against the contract and ready to be stored."""

    entity: str
    id: str
    version: int
    type: int
    updated_at: int  # microseconds since 1970-01-01 UTC
    client_id: str
    author: str | None
    product_instance_id: str | None  # the application of a child; None for other documents
    data: bytes | memoryview  # raw JSON text in UTF-8
