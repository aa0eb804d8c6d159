"""Annals' settings: one typed field for each environment variable, checked when it is read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, get_type_hints

import msgspec
from msgspec import Meta

EXACT = {"DATABASE_URL", "KAFKA_BOOTSTRAP_SERVERS"}
KAFKA_PREFIX = "ANNALS_KAFKA_"


class SettingError(ValueError):
    """A setting that cannot be used. The message names it and says what would be right."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings. The environment variable of a field is ANNALS_ and its name in capitals;
    DATABASE_URL and KAFKA_BOOTSTRAP_SERVERS go without the prefix."""

    database_url: Annotated[
        str | None,
        Meta(
            description="PostgreSQL to use, as a libpq URI; several hosts are allowed. "
            "Unset: an embedded PostgreSQL under ANNALS_HOME."
        ),
    ] = None
    kafka_bootstrap_servers: Annotated[
        str | None,
        Meta(
            description="Kafka brokers, `host:port,host:port`. "
            "Unset: an embedded broker under ANNALS_HOME."
        ),
    ] = None
    home: Annotated[
        Path, Meta(description="Where embedded servers and generated secrets keep their files.")
    ] = Path(".annals")
    secret_key: Annotated[
        Annotated[str, Meta(min_length=32)] | None,
        Meta(
            description="Signs sessions and page tokens; the same for every web "
            "process. Unset: made once and kept in ANNALS_HOME."
        ),
    ] = None
    demo: Annotated[
        bool,
        Meta(
            description="Demo logins and HTTP Basic. On by itself only with the embedded "
            "PostgreSQL; with a DATABASE_URL it must be set on purpose."
        ),
    ] = False
    retention_days: Annotated[
        int, Meta(ge=1, le=3650, description="How many days of versions are kept.")
    ] = 90
    ahead_days: Annotated[
        int,
        Meta(
            ge=1,
            le=60,
            description="How many days ahead partitions are made; a version dated "
            "later than that is quarantined.",
        ),
    ] = 14
    hold_days: Annotated[
        int,
        Meta(
            ge=0,
            le=365,
            description="For how many days beyond retention a day is held that has unresolved "
            "messages in quarantine or unread ones in Kafka.",
        ),
    ] = 7
    seal_days: Annotated[
        int,
        Meta(
            ge=0,
            le=3650,
            description="How many days after its end a day counts as finished: `partitions "
            "maintain` seals it then. 0: no day is sealed.",
        ),
    ] = 14
    archive_url: Annotated[
        Annotated[str, Meta(pattern=r"^(/|\./|\.\./|file://|s3://|gs://).")] | None,
        Meta(
            description="Where days are kept as Parquet before they are dropped: a directory, or "
            "an `s3://` or `gs://` URL as pyarrow takes it. Unset: they are not kept."
        ),
    ] = None
    allowed_hosts: Annotated[
        tuple[str, ...], Meta(description="Host names that the web answers to, comma-separated.")
    ] = ("localhost", "127.0.0.1", "[::1]")
    api_rate: Annotated[
        int,
        Meta(
            ge=0,
            le=10_000_000,
            description="How many API requests a minute one login may make of one web process; "
            "0: as many as it likes.",
        ),
    ] = 30_000
    https: Annotated[
        bool, Meta(description="The web is reached over HTTPS: secure cookies, HSTS.")
    ] = False
    log_level: Annotated[
        str, Meta(pattern="^(DEBUG|INFO|WARNING|ERROR)$", description="The least level logged.")
    ] = "INFO"
    log_format: Annotated[
        str,
        Meta(
            pattern="^(console|json)$",
            description="`console`: lines for people; "
            "`json`: one JSON object a line, for a log collector.",
        ),
    ] = "console"
    consumer_group: Annotated[
        str, Meta(min_length=1, description="Kafka consumer group of `manage.py consume`.")
    ] = "annals"
    librdkafka_file: Annotated[
        Path | None,
        Meta(
            description="A properties file with librdkafka settings, `name=value` a line; "
            "`ANNALS_KAFKA_*` go before it. For passwords and certificates."
        ),
    ] = None
    envelopes_file: Annotated[
        Path | None,
        Meta(
            description="JSON that says where the fields of a topic's messages are, where they "
            "are not where the contract has them; see docs/kafka.md."
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
        int, Meta(ge=1, le=100_000, description="Most messages written in one transaction.")
    ] = 10_000
    batch_bytes: Annotated[
        int,
        Meta(
            ge=65_536,
            le=268_435_456,
            description="Most bytes of messages written in one transaction; a larger message goes "
            "alone. Two batches are in memory at a time.",
        ),
    ] = 16_777_216
    max_bad_in_a_row: Annotated[
        int,
        Meta(
            ge=1, description="Reading a topic partition halts after so many bad messages in a row."
        ),
    ] = 1_000
    max_bad_ratio: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            description="Reading a topic partition halts when so much of the last "
            "ANNALS_BAD_WINDOW_MESSAGES is bad.",
        ),
    ] = 0.5
    bad_window_messages: Annotated[
        int, Meta(ge=10, description="How many messages ANNALS_MAX_BAD_RATIO looks back.")
    ] = 2_000
    metrics_token: Annotated[
        Annotated[str, Meta(min_length=16)] | None,
        Meta(
            description="Opens `/metrics` to whoever sends it as Bearer token. "
            "Unset: `/metrics` is closed, except in the demo."
        ),
    ] = None


def variable(field: str) -> str:
    """The environment variable of a field of Settings."""
    name = field.upper()
    return name if name in EXACT else f"ANNALS_{name}"


def read(environ: Mapping[str, str]) -> Settings:
    """Settings from the environment. An empty value counts as unset.

    Raises SettingError for a wrong value, and for an ANNALS_ name that does not exist (a typing
    error there would otherwise go unnoticed). ANNALS_KAFKA_* and ANNALS_TEST_* are not read here.
    """
    hints = get_type_hints(Settings)
    fields = {variable(name): name for name in hints}
    for name in environ:
        if name.startswith("ANNALS_") and name not in fields and not _elsewhere(name):
            raise SettingError(
                f"{name} is not a setting of Annals; see docs/settings.md for those that are."
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
    return settings


def kafka(environ: Mapping[str, str], file: Path | None = None) -> dict[str, str]:
    """librdkafka settings from the properties file, and before it from ANNALS_KAFKA_*:
    ANNALS_KAFKA_SASL_MECHANISM is sasl.mechanism. Raises SettingError."""
    return _properties(file) | {
        name.removeprefix(KAFKA_PREFIX).lower().replace("_", "."): value
        for name, value in environ.items()
        if name.startswith(KAFKA_PREFIX) and value
    }


def _properties(file: Path | None) -> dict[str, str]:
    if file is None:
        return {}
    try:
        lines = file.read_text().splitlines()
    except OSError as error:
        raise SettingError(f"ANNALS_LIBRDKAFKA_FILE cannot be read: {error}") from None
    found = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise SettingError(
                f"ANNALS_LIBRDKAFKA_FILE is wrong: line {number} of {file} is not name=value."
            )
        found[name.strip()] = value.strip()
    return found


def _elsewhere(name: str) -> bool:
    return name.startswith((KAFKA_PREFIX, "ANNALS_TEST_"))


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
    """The given secret key, or the one kept in ANNALS_HOME, made at the first call (mode 0600)."""
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
