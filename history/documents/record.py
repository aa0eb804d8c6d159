"""The contract of the *_aud tables: one record is one version of one entity."""

from enum import IntEnum

import msgspec

ID_LENGTH = 32
CLIENT_ID_LENGTH = 64
AUTHOR_LENGTH = 64
MAX_VERSION = 2_147_483_647
# No row of ingest_unstored covers more offsets than this, so that an index finds an offset.
UNSTORED_SPAN = 100_000


class ChangeType(IntEnum):
    """The kinds of change that make a version: the values of the type column."""

    CREATE = 0
    UPDATE = 1
    DELETE = 2


class Record(msgspec.Struct, frozen=True, gc=False):
    """One version of one entity, checked, ready to be stored."""

    entity: str
    id: str
    version: int
    type: int
    updated_at: int  # microseconds since 1970-01-01 UTC
    client_id: str
    author: str | None
    product_instance_id: str | None  # None only for the application itself
    data: bytes | memoryview  # raw JSON text in UTF-8
