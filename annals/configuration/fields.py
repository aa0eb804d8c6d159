"""All settings: one annotated attribute for each, with its description.

annals.configuration.env reads them.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an installation.

    The environment variable of a field is ANNALS_ and its name in capitals. DATABASE_URL and
    KAFKA_BOOTSTRAP_SERVERS do not have the prefix.
    """

    # The database, the files of this installation, and how long versions are kept.

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
            description="How many days after today a version can be dated. A version that is dated "
            "later goes to quarantine. Partitions are created 7 days further ahead.",
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
            description="How many days after the end of a day `partitions maintain` seals it. "
            "0: no day is sealed.",
        ),
    ] = 14
    pack_after_days: Annotated[
        int,
        Meta(
            ge=0,
            le=3650,
            description="How many days after the end of a day, at least 2, `partitions maintain` "
            "packs it: up to 64 versions of a document in one row, compressed. 0: no day is "
            "packed.",
        ),
    ] = 2
    archive_url: Annotated[
        Annotated[str, Meta(pattern=r"^(/|\./|\.\./|file://|s3://|gs://).")] | None,
        Meta(
            description="Archive to which a day is written as Parquet before it is dropped: a "
            "directory, or an `s3://` or `gs://` URL as pyarrow reads it. Unset: no archive."
        ),
    ] = None

    # Kafka, what its messages look like, and how many are stored at a time.

    kafka_bootstrap_servers: Annotated[
        str | None,
        Meta(
            description="Addresses of the Kafka brokers, `host:port,host:port`. "
            "Unset: an embedded broker under ANNALS_HOME."
        ),
    ] = None
    consumer_group: Annotated[
        str, Meta(min_length=1, description="Kafka consumer group that `annals consume` joins.")
    ] = "annals"
    librdkafka_file: Annotated[
        Path | None,
        Meta(
            description="Properties file with librdkafka settings, one `name=value` per line, for "
            "example passwords and certificates. `ANNALS_KAFKA_*` variables override it."
        ),
    ] = None
    language: Annotated[
        str,
        Meta(
            pattern=r"^(ru|en|auto)$",
            description="Language of the screens until a person chooses another. `auto`: the "
            "language that the browser asks for. The default of the demo is `auto`.",
        ),
    ] = "ru"
    entities_file: Annotated[
        Path | None,
        Meta(
            description="TOML file that declares the kinds of entities; see docs/kinds.md. Unset: "
            "the five kinds of a loan application."
        ),
    ] = None
    writers: Annotated[
        int,
        Meta(
            ge=1,
            le=8,
            description="Batches that a consumer writes at the same time, each over a connection "
            "of its own.",
        ),
    ] = 2
    batch_rows: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="Maximum messages in all open transactions of a consumer together. Each of "
            "its writers (ANNALS_WRITERS) gets an equal share.",
        ),
    ] = 10_000
    batch_bytes: Annotated[
        int,
        Meta(
            ge=65_536,
            le=268_435_456,
            description="Maximum bytes of messages in all open transactions of a consumer "
            "together. A message larger than the share of a writer gets a transaction of its own. "
            "The consumer needs twice as many bytes of memory.",
        ),
    ] = 16_777_216
    max_bad_in_a_row: Annotated[
        int,
        Meta(ge=1, description="Number of consecutive bad messages that halts a topic partition."),
    ] = 1_000
    max_bad_ratio: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            description="Share of bad messages among the last 2,000 that halts a topic partition.",
        ),
    ] = 0.5

    # Who may log in, from where, and what is recorded.

    journal_days: Annotated[
        int,
        Meta(
            ge=1,
            le=3650,
            description="Days for which the access journal is kept: who looked at what.",
        ),
    ] = 365
    journal_failure: Annotated[
        str,
        Meta(
            pattern="^(refuse|answer)$",
            description="What happens to a request that cannot be written to the access journal. "
            "`refuse`: the answer is 503, without data. `answer`: the request is answered and "
            "counted, and an alert fires.",
        ),
    ] = "refuse"
    journal_log: Annotated[
        bool,
        Meta(
            description="Each row of the access journal is also written as one line of JSON, for a "
            "SIEM: by the web to standard output, by a command to standard error."
        ),
    ] = False
    need_to_know: Annotated[
        Annotated[str, Meta(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$")] | None,
        Meta(
            description="Dotted path of a Python function that decides who may see which "
            "application, in addition to the roles; see docs/access.md. Unset: the roles alone."
        ),
    ] = None
    oidc_file: Annotated[
        Path | None,
        Meta(
            description="TOML or JSON that declares the identity providers: login for people, "
            "Bearer tokens for programs; see docs/access.md."
        ),
    ] = None
    session_hours: Annotated[
        int, Meta(ge=1, le=168, description="Hours after which a login on the screens ends.")
    ] = 10
    session_idle_minutes: Annotated[
        int, Meta(ge=2, le=10_080, description="Minutes without a request that end a login.")
    ] = 60
    session_renew_minutes: Annotated[
        int,
        Meta(
            ge=1,
            le=10_080,
            description="Minutes after which the identity provider is asked again whether a "
            "person may still log in. The person notices nothing.",
        ),
    ] = 60
    trusted_proxies: Annotated[
        tuple[str, ...],
        Meta(
            description="Addresses or networks (CIDR) of the proxies whose `X-Forwarded-For` is "
            "believed, comma-separated. Unset: the header is ignored."
        ),
    ] = ()

    # What the web server answers, how long it takes, and what operators see.

    allowed_hosts: Annotated[
        tuple[str, ...],
        Meta(description="Host names under which the web server may be reached, comma-separated."),
    ] = ("localhost", "127.0.0.1", "[::1]")
    request_seconds: Annotated[
        int,
        Meta(
            ge=1,
            le=600,
            description="Seconds after which the web stops the work for a request and answers "
            "503. A statement of the request may not take longer either.",
        ),
    ] = 30
    https: Annotated[
        bool,
        Meta(
            description="Set it where users reach the web server over HTTPS: cookies become "
            "secure, plain HTTP is redirected, and HSTS is sent for the host and its subdomains."
        ),
    ] = False
    log_level: Annotated[
        str,
        Meta(pattern="^(DEBUG|INFO|WARNING|ERROR)$", description="Lowest level that is logged."),
    ] = "INFO"
    log_format: Annotated[
        str,
        Meta(
            pattern="^(console|json)$",
            description="`console`: text lines for people; "
            "`json`: one JSON object per line, for a log collector.",
        ),
    ] = "console"
    runbook_url: Annotated[
        Annotated[str, Meta(pattern=r"^https?://.")] | None,
        Meta(
            description="Address at which operators read docs/runbook.md. The page Operations "
            "links to its sections. Unset: no link."
        ),
    ] = None
    disk_gb: Annotated[
        int,
        Meta(
            ge=0,
            description="Size of PostgreSQL's disk in GB (10^9 bytes). With it, the page "
            "Operations forecasts when the disk is full, and a day is packed only if the disk has "
            "room for it. 0: not known.",
        ),
    ] = 0
    metrics_token: Annotated[
        Annotated[str, Meta(min_length=16)] | None,
        Meta(
            description="Bearer token that a client must send to read `/metrics` of the web, or of "
            "a consumer that has this setting. Unset: `/metrics` of the web is open in the demo "
            "and closed elsewhere. `/metrics` of a consumer is open, but only on the loopback "
            "address."
        ),
    ] = None

    # The old service: where it is, until when it is asked, and how long it may take.

    fallback_url: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(
            description="Address of the service that Annals replaces, such as "
            "`https://old.example`. Its API is at `/api/v1/` below this address. Timelines then "
            "also have the versions that only the old service has; see docs/migration.md. Unset: "
            "no old service is asked."
        ),
    ] = None
    fallback_until: Annotated[
        date | None,
        Meta(
            description="Last day, in UTC, on which the old service is asked; required with "
            "ANNALS_FALLBACK_URL."
        ),
    ] = None
    fallback_token_file: Annotated[
        Path | None,
        Meta(
            description="File with the Bearer token for the old service; it is read before each "
            "call, so it can be replaced. Unset: calls have no token."
        ),
    ] = None
    fallback_ca_file: Annotated[
        Path | None,
        Meta(
            description="PEM file with the certificate authorities of the old service. Unset: "
            "those that are trusted by default."
        ),
    ] = None
    fallback_seconds: Annotated[
        float,
        Meta(
            ge=0.1,
            le=20,
            description="Seconds that one request may wait for the old service, in all its calls "
            "together.",
        ),
    ] = 2.0
