"""Settings of the database and of the days that are kept in it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta


class Store(msgspec.Struct, frozen=True, kw_only=True):
    """The database, the files of this installation, and how long versions are kept."""

    database_url: Annotated[
        str | None,
        Meta(
            description="URI of the PostgreSQL database, as libpq reads it; it may name several "
            "hosts. Unset: an embedded PostgreSQL under ANNALS_HOME."
        ),
    ] = None
    home: Annotated[
        Path, Meta(description="Directory for the files of embedded servers and generated secrets.")
    ] = Path(".annals")
    secret_key: Annotated[
        Annotated[str, Meta(min_length=32)] | None,
        Meta(
            description="Key that signs sessions and page tokens; all web processes need the same "
            "one. Unset: generated once and stored in ANNALS_HOME."
        ),
    ] = None
    demo: Annotated[
        bool,
        Meta(
            description="Creates the demo logins and allows HTTP Basic authentication. Unset: "
            "`true` with the embedded PostgreSQL, `false` with a DATABASE_URL."
        ),
    ] = False
    retention_days: Annotated[
        int, Meta(ge=1, le=3650, description="Days for which versions are kept in PostgreSQL.")
    ] = 90
    ahead_days: Annotated[
        int,
        Meta(
            ge=1,
            le=60,
            description="How many days after today a version can be dated; one dated later goes to "
            "quarantine. Partitions are created 7 days further ahead.",
        ),
    ] = 14
    hold_days: Annotated[
        int,
        Meta(
            ge=0,
            le=365,
            description="Maximum days by which the removal of an old day is delayed because it has "
            "unresolved messages in quarantine or unread messages in Kafka.",
        ),
    ] = 7
    seal_days: Annotated[
        int,
        Meta(
            ge=0,
            le=3650,
            description="Days after the end of a day when `partitions maintain` seals it. "
            "0: no day is sealed.",
        ),
    ] = 14
    archive_url: Annotated[
        Annotated[str, Meta(pattern=r"^(/|\./|\.\./|file://|s3://|gs://).")] | None,
        Meta(
            description="Archive to which a day is written as Parquet before it is dropped: a "
            "directory, or an `s3://` or `gs://` URL as pyarrow reads it. Unset: no archive."
        ),
    ] = None
