"""Reads Annals' settings from the environment: one typed field for each variable, checked."""

import os
import re
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final, get_type_hints
from urllib.parse import urlsplit

import msgspec

from annals.fields import Settings as Settings
from history.base import private_files
from history.failure.complaints import (
    Complaint,
    FileError,
    of_declaration,
    of_file,
    read_bytes,
    read_text,
    refuse_open_secret,
)
from history.failure.valid_values import nearest

EXACT = {"DATABASE_URL", "KAFKA_BOOTSTRAP_SERVERS"}
# No setting: this process and those that it starts serve a demo because DATABASE_URL was unset.
UNASKED_DEMO = "_ANNALS_UNASKED_DEMO"
KAFKA_PREFIX = "ANNALS_KAFKA_"
LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "::1", "::ffff:127.0.0.1")


class SettingError(Complaint, ValueError):
    """A setting has a wrong value. The message names the setting and says what is valid."""


# How msgspec names a choice.
_CHOICES = re.compile(r"regex '\^\((\w+(?:\|\w+)+)\)\$'")
# Of settings with a form of their own.
_FORMS = {
    "archive_url": "a folder (/path or ./path), or a URL that begins with file://, s3:// or gs://",
    "runbook_url": "an address that begins with https:// or http://",
    "need_to_know": "the dotted path of a Python function, as package.module.function",
    "fallback_until": "a day, as 2026-12-31",
}
# A host as browsers send it, without its port.
_HOST = re.compile(r"\*|\.?[^\s/:@]+|\[?[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*\]?")
# As librdkafka reads it; without a port it takes 9092.
_BROKER = re.compile(
    r"(?:(?:plaintext|ssl|sasl_plaintext|sasl_ssl)://)?(?:\[[0-9A-Fa-f:.%]+\]|[^\s:/@\[\]]+)"
    r"(?::(?P<port>[0-9]{1,5}))?",
    re.IGNORECASE,
)

_ELSEWHERE = (
    "Let it name a folder that this process, and nobody else, may write, or set DATABASE_URL, "
    "KAFKA_BOOTSTRAP_SERVERS and ANNALS_SECRET_KEY."
)

WEB_THREADS = 16  # of a web process: they answer requests


def variable(field: str) -> str:
    """The environment variable of a field of Settings."""
    name = field.upper()
    return name if name in EXACT else f"ANNALS_{name}"


def read(environ: Mapping[str, str]) -> Settings:
    """Settings from the environment. An empty value counts as unset. Raises SettingError for a
    wrong value and an unknown ANNALS_ name. ANNALS_KAFKA_* and ANNALS_TEST_* are not read here."""
    hints = get_type_hints(Settings)
    fields = {variable(name): name for name in hints}
    for name in environ:
        elsewhere = name.startswith((KAFKA_PREFIX, "ANNALS_TEST_"))
        if name.startswith("ANNALS_") and name not in fields and not elsewhere:
            meant = nearest(name, fields)
            question = f"Did you mean {meant}? " if meant is not None else ""
            raise SettingError(
                f"{name} is not a setting of Annals. {question}docs/settings.md lists all settings."
            )
    values: dict[str, object] = {}
    for name, field in fields.items():
        text = environ.get(name, "").strip()
        if text:
            values[field] = _split(text) if hints[field] == tuple[str, ...] else text
    try:
        settings = msgspec.convert(values, Settings, strict=False, dec_hook=to_path)
    except msgspec.ValidationError as error:
        raise SettingError(_sentence(error)) from None
    if settings.database_url is not None:
        _check_database_url(settings.database_url)
    for host in settings.allowed_hosts:
        if not _HOST.fullmatch(host):
            raise SettingError(
                f"ANNALS_ALLOWED_HOSTS is wrong: {host!r} must be a host name or an address, "
                "without https:// and port, as annals.bank.example. See docs/settings.md."
            )
    _check_brokers(settings.kafka_bootstrap_servers)
    _check_fallback(settings)
    return settings


def _check_database_url(url: str) -> None:
    """Refuse a URL that libpq cannot read, or reads otherwise than it is meant."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        parts = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except (ProgrammingError, UnicodeError):
        parts = {"host": "@"}
    for name in ("sslrootcert", "sslcert", "sslkey", "sslcrl", "passfile"):
        file = parts.get(name, "")
        if file not in ("", "system") and not Path(file).expanduser().is_file():
            raise SettingError(f"DATABASE_URL is wrong: its {name} is no file: {file}.")
    ports = parts.get("port", "").split(",")
    if "@" in parts.get("host", "") + parts.get("dbname", "") or not all(
        port.isdigit() or not port for port in ports
    ):
        raise SettingError(
            "DATABASE_URL is wrong: it must be postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with "
            "% as %25, @ as %40, / as %2F and : as %3A in user and password. See docs/settings.md."
        )


def _check_brokers(servers: str | None) -> None:
    """Refuse what librdkafka takes for a host or a port, and nobody means."""
    for server in _split(servers or ""):
        found = _BROKER.fullmatch(server)
        if found is None or not 0 < int(found["port"] or 9092) < 65_536:
            # A user and a password are not written here, but some will try.
            what = "a server" if set("@?=") & set(servers or "") else repr(server)
            raise SettingError(
                f"KAFKA_BOOTSTRAP_SERVERS is wrong: {what} must be HOST:PORT, with a port from "
                "1 to 65535. A login is ANNALS_KAFKA_SASL_*. See docs/settings.md."
            )


def _check_fallback(settings: Settings) -> None:
    """Refuse an old service that cannot be asked, or would get its token over an open line."""
    if settings.fallback_url is None:
        return
    wrong = "ANNALS_FALLBACK_URL is wrong: it must be https://HOST (http:// only on the loopback "
    wrong += "address), without user, query and fragment. See docs/migration.md."
    if not is_safe_url(settings.fallback_url):
        raise SettingError(wrong)
    if settings.fallback_until is None:
        raise SettingError(
            "ANNALS_FALLBACK_UNTIL is missing: ANNALS_FALLBACK_URL needs the last day on which the "
            "old service is asked, as 2026-12-31. See docs/migration.md."
        )
    for name in ("fallback_token_file", "fallback_ca_file"):
        file: Path | None = getattr(settings, name)
        try:
            if file is not None and name == "fallback_token_file":
                refuse_open_secret(file)
            empty = file is not None and not read_bytes(file).strip()
        except FileError as error:
            raise SettingError(f"{variable(name)} is wrong: {error}.") from None
        if empty:
            raise SettingError(f"{variable(name)} is wrong: {file} is empty.")


def is_safe_url(url: str) -> bool:
    """Whether a token may be sent to an address: https://HOST (http:// only on the loopback
    address), without user, query and fragment."""
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    secure = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)
    return usable and secure and not ("@" in parts.netloc or parts.query or parts.fragment)


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def to_path(kind: type, value: object) -> object:
    """For msgspec: the path that a text names."""
    if kind is Path and isinstance(value, str):
        return Path(value).expanduser()
    raise TypeError(kind)


def _sentence(error: msgspec.ValidationError) -> str:
    """What was expected, in words; nothing of the value, which may be a secret."""
    expected, _, where = of_declaration(error, "text").partition(" - at `$.")
    field = where.rstrip("`").partition("[")[0]
    if choices := _CHOICES.search(str(error)):
        valid = choices[1].replace("|", ", ")
    else:
        valid = _FORMS.get(field) or expected.removeprefix("Expected ").partition(", got ")[0]
    return f"{variable(field)} is wrong: it must be {valid}. See docs/settings.md."


def secret_key(settings: Settings) -> str:
    """The configured secret key, or the one in ANNALS_HOME, made at the first call (0600)."""
    if settings.secret_key:
        return settings.secret_key
    refuse_others_home(settings.home)
    path = settings.home / "secret_key"
    try:
        if not _written(path):
            with private_files.exclusive(path.with_suffix(".lock")):
                if not _written(path):
                    private_files.write(path, secrets.token_urlsafe(48))
        return _written(path)
    except OSError as error:
        raise unusable_home(error) from None


def _written(path: Path) -> str:
    """The text of a file, empty if there is none."""
    return path.read_text() if path.exists() else ""


# What is made there, and read by later commands; PostgreSQL's data may be another user's.
_OWN: Final = ("secret_key", "postgres", "broker", "apache-kafka")


def refuse_others_home(home: Path) -> None:
    """Raise SettingError if another user may have made what is in ANNALS_HOME. A container's volume
    may be writable for everybody: then what is in it has to be ours."""
    for path in (home, *(home / each for each in _OWN)):
        try:
            found = path.stat()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise unusable_home(error) from None
        if found.st_uid not in (0, os.geteuid()):
            fault = f"{path} belongs to the user {found.st_uid}, who may have prepared it"
        elif found.st_mode & stat.S_IWOTH and path != home:
            fault = f"every user of this machine may write {path}"
        else:
            continue
        raise SettingError(f"ANNALS_HOME cannot be used: {fault}. {_ELSEWHERE}")


def unusable_home(error: OSError) -> SettingError:
    """The error about a folder of ANNALS_HOME in which a file cannot be made or read."""
    what = of_file(error, error.filename or "its folder")
    if isinstance(error, FileNotFoundError) and error.filename is None:
        what = "the folder in which this process was started is gone"
    return SettingError(f"ANNALS_HOME cannot be used: {what}. {_ELSEWHERE}")


# librdkafka settings that belong to the consumer, each with what another value would break.
OF_CONSUMER = {
    "isolation.level": "Annals reads committed messages only; aborted ones are not versions",
    "partition.assignment.strategy": "the consumer's hand-over needs the eager strategies; "
    "an incremental one would let two consumers read a partition",
    "group.id": "use ANNALS_CONSUMER_GROUP",
    "enable.auto.commit": "offsets are committed after their rows",
    "enable.auto.offset.store": "offsets are committed after their rows",
    "auto.offset.reset": "the ledger says where reading goes on",
}


def librdkafka(environ: Mapping[str, str], file: Path | None = None) -> dict[str, str]:
    """librdkafka settings from the properties file, overridden by ANNALS_KAFKA_* variables:
    ANNALS_KAFKA_SASL_MECHANISM is sasl.mechanism. Raises SettingError."""
    found = _properties(file) | {
        name.removeprefix(KAFKA_PREFIX).lower().replace("_", "."): value
        for name, value in environ.items()
        if name.startswith(KAFKA_PREFIX) and value
    }
    for name, why in OF_CONSUMER.items():
        if name in found:
            raise SettingError(
                f"{name} cannot be set for Kafka ({KAFKA_PREFIX}"
                f"{name.upper().replace('.', '_')} or ANNALS_LIBRDKAFKA_FILE): {why}."
            )
    return found


# Settings of librdkafka that are secrets; `ssl.key.location` only names a file.
_SECRET = re.compile(r"password|secret|^ssl\.key\.pem$|^sasl\.oauthbearer\.config$|^sasl\.jaas")


def _properties(file: Path | None) -> dict[str, str]:
    if file is None:
        return {}
    try:
        lines = read_text(file).splitlines()
    except FileError as error:
        raise SettingError(f"ANNALS_LIBRDKAFKA_FILE is wrong: {error}.") from None
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
    if any(_SECRET.search(name) for name in found):
        try:
            refuse_open_secret(file)
        except FileError as error:
            raise SettingError(f"ANNALS_LIBRDKAFKA_FILE is wrong: {error}.") from None
    return found
