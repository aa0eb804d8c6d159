"""Annals' settings: one typed field for each environment variable, checked when it is read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, get_type_hints

import msgspec
from msgspec import Meta

EXACT = {"DATABASE_URL", "KAFKA_BOOTSTRAP_SERVERS"}
# No setting: this process and those that it starts serve a demo because DATABASE_URL was unset.
UNASKED_DEMO = "_ANNALS_UNASKED_DEMO"
KAFKA_PREFIX = "ANNALS_KAFKA_"


class SettingError(ValueError):
    """A setting has a wrong value. The message names the setting and says what is valid."""


WEB_THREADS = 16  # of a web process: they answer requests


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings. The environment variable of a field is ANNALS_ plus its name in capitals;
    DATABASE_URL and KAFKA_BOOTSTRAP_SERVERS have no prefix."""

    database_url: Annotated[
        str | None,
        Meta(
            description="URI of the PostgreSQL database, as libpq reads it; it may name several "
            "hosts. Unset: an embedded PostgreSQL under ANNALS_HOME."
        ),
    ] = None
    kafka_bootstrap_servers: Annotated[
        str | None,
        Meta(
            description="Addresses of the Kafka brokers, `host:port,host:port`. "
            "Unset: an embedded broker under ANNALS_HOME."
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
            "`refuse`: it gets 503 and shows nothing; `answer`: it is answered, counted and an "
            "alert fires.",
        ),
    ] = "refuse"
    need_to_know: Annotated[
        Annotated[str, Meta(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$")] | None,
        Meta(
            description="Dotted path of a Python function that decides who may see which "
            "application, in addition to the roles; see docs/access.md. Unset: the roles alone."
        ),
    ] = None
    quota_people: Annotated[
        Annotated[int, Meta(ge=0, le=1_000_000)] | None,
        Meta(
            description="Maximum different applications that a person may open in an hour; "
            "0 = no limit. Unset: 200, and no limit in the demo."
        ),
    ] = None
    quota_roles: Annotated[
        tuple[str, ...],
        Meta(
            description="Other limits for people with a role, comma-separated: `auditor=1000`; "
            "the highest of a person's roles counts, 0 = no limit. Unset: none."
        ),
    ] = ()
    quota_programs: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="The same for a program with a Bearer token; 0 = no limit.",
        ),
    ] = 0
    archive_url: Annotated[
        Annotated[str, Meta(pattern=r"^(/|\./|\.\./|file://|s3://|gs://).")] | None,
        Meta(
            description="Archive to which a day is written as Parquet before it is dropped: a "
            "directory, or an `s3://` or `gs://` URL as pyarrow reads it. Unset: no archive."
        ),
    ] = None
    allowed_hosts: Annotated[
        tuple[str, ...],
        Meta(description="Host names under which the web server may be reached, comma-separated."),
    ] = ("localhost", "127.0.0.1", "[::1]")
    api_rate: Annotated[
        int,
        Meta(
            ge=0,
            le=10_000_000,
            description="Maximum API requests per minute of one login to one web process; "
            "0 = no limit.",
        ),
    ] = 30_000
    request_seconds: Annotated[
        int,
        Meta(
            ge=1,
            le=600,
            description="Seconds after which the web stops the work for a request, in PostgreSQL "
            "too, and answers 503.",
        ),
    ] = 30
    client_seconds: Annotated[
        int,
        Meta(
            ge=1,
            le=600,
            description="Seconds that a client may take to send a request, or to read an answer. "
            "One that sends or reads 10 KB a second may take longer.",
        ),
    ] = 20
    download_seconds: Annotated[
        int,
        Meta(
            ge=1,
            le=86400,
            description="Seconds after which the web ends a download of the access journal. "
            "The file then ends with NOT COMPLETE, and the connection is reset.",
        ),
    ] = 600
    dear_requests: Annotated[
        int,
        Meta(
            ge=1,
            le=5,
            description="How many questions about whole histories (blame, the history of a field, "
            "applications, changes of a path, the archive, pages of more than 100 versions) one "
            "web process answers at a time. "
            "Twice as many more wait for 2 seconds, others get 503. A process has 16 threads.",
        ),
    ] = 4
    session_hours: Annotated[
        int,
        Meta(ge=1, le=168, description="Hours after which a login on the screens ends."),
    ] = 10
    session_idle_minutes: Annotated[
        int,
        Meta(ge=2, le=10_080, description="Minutes without a request that end a login."),
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
            "believed, comma-separated. Unset: nobody's."
        ),
    ] = ()
    operator_networks: Annotated[
        tuple[str, ...],
        Meta(
            description="Addresses or networks (CIDR) of operators, comma-separated: failed logins "
            "elsewhere do not delay a login from here. This machine is always one."
        ),
    ] = ()
    https: Annotated[
        bool,
        Meta(
            description="Set it where users reach the web server over HTTPS: cookies become "
            "secure, plain HTTP is redirected, HSTS is sent, for the host and those below its name."
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
    consumer_group: Annotated[
        str, Meta(min_length=1, description="Kafka consumer group that `manage.py consume` joins.")
    ] = "annals"
    librdkafka_file: Annotated[
        Path | None,
        Meta(
            description="Properties file with librdkafka settings, one `name=value` per line, for "
            "example passwords and certificates. `ANNALS_KAFKA_*` variables override it."
        ),
    ] = None
    envelopes_file: Annotated[
        Path | None,
        Meta(
            description="JSON file that says where the fields of a topic's messages are, if they "
            "are not where the message contract has them; see docs/kafka.md."
        ),
    ] = None
    oidc_file: Annotated[
        Path | None,
        Meta(
            description="TOML or JSON that declares the identity providers: login for people, "
            "Bearer tokens for programs; see docs/access.md."
        ),
    ] = None
    batch_rows: Annotated[
        int, Meta(ge=1, le=100_000, description="Maximum messages in one transaction.")
    ] = 10_000
    batch_bytes: Annotated[
        int,
        Meta(
            ge=65_536,
            le=268_435_456,
            description="Maximum bytes of messages in one transaction; a larger message gets a "
            "transaction of its own. Two batches are in memory at a time.",
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
            description="Share of bad messages among the last ANNALS_BAD_WINDOW_MESSAGES that "
            "halts a topic partition.",
        ),
    ] = 0.5
    bad_window_messages: Annotated[
        int,
        Meta(
            ge=10,
            description="Number of latest messages over which ANNALS_MAX_BAD_RATIO is computed.",
        ),
    ] = 2_000
    metrics_token: Annotated[
        Annotated[str, Meta(min_length=16)] | None,
        Meta(
            description="Bearer token that a client must send to read `/metrics`. "
            "Unset: `/metrics` is open in the demo and closed elsewhere."
        ),
    ] = None


def variable(field: str) -> str:
    """The environment variable of a field of Settings."""
    name = field.upper()
    return name if name in EXACT else f"ANNALS_{name}"


def read(environ: Mapping[str, str]) -> Settings:
    """Settings from the environment. An empty value counts as unset.

    Raises SettingError for a wrong value and for an ANNALS_ name that is not a setting (otherwise a
    typing error would go unnoticed). ANNALS_KAFKA_* and ANNALS_TEST_* are not read here.
    """
    hints = get_type_hints(Settings)
    fields = {variable(name): name for name in hints}
    for name in environ:
        if name.startswith("ANNALS_") and name not in fields and not _read_elsewhere(name):
            raise SettingError(
                f"{name} is not a setting of Annals. docs/settings.md lists all settings."
            )
    values: dict[str, object] = {}
    for name, field in fields.items():
        text = environ.get(name, "").strip()
        if text:
            values[field] = _split(text) if hints[field] == tuple[str, ...] else text
    try:
        settings = msgspec.convert(values, Settings, strict=False, dec_hook=_path)
    except msgspec.ValidationError as error:
        raise SettingError(_sentence(error)) from None
    if settings.database_url is not None:
        _check_database_url(settings.database_url)
    return settings


def _read_elsewhere(name: str) -> bool:
    return name.startswith((KAFKA_PREFIX, "ANNALS_TEST_"))


def _check_database_url(url: str) -> None:
    """Refuse a URL that libpq cannot read, or reads otherwise than it is meant. The message quotes
    nothing of it: a wrong URL often shows a part of the password."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        parts = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except (ProgrammingError, UnicodeError):
        parts = {"host": "@"}
    ports = parts.get("port", "").split(",")
    if "@" in parts.get("host", "") + parts.get("dbname", "") or not all(
        port.isdigit() or not port for port in ports
    ):
        raise SettingError(
            "DATABASE_URL is wrong: it must be postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with "
            "% as %25, @ as %40, / as %2F and : as %3A in user and password. See docs/settings.md."
        )


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _path(kind: type, value: object) -> object:
    if kind is Path and isinstance(value, str):
        return Path(value).expanduser()
    raise TypeError(kind)


def _sentence(error: msgspec.ValidationError) -> str:
    reason, _, where = str(error).partition(" - at `$.")
    field = where.rstrip("`").partition("[")[0]
    return f"{variable(field)} is wrong: {reason[0].lower()}{reason[1:]}. See docs/settings.md."


def secret_key(settings: Settings) -> str:
    """The configured secret key, or the one in ANNALS_HOME, generated at the first call (mode
    0600)."""
    if settings.secret_key:
        return settings.secret_key
    import secrets

    settings.home.mkdir(parents=True, exist_ok=True)
    path = settings.home / "secret_key"
    try:
        with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(48))
    except FileExistsError:
        pass
    return path.read_text()
