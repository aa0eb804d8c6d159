"""Reads and checks the settings of Annals, which are environment variables."""

import os
import re
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final, get_type_hints
from urllib.parse import urlsplit

import msgspec

from annals.configuration.fields import Settings
from history.common import private_files
from history.common.explained_errors import (
    ExplainedError,
    FileError,
    explain_declaration_error,
    explain_file_error,
    read_bytes,
    read_text,
    refuse_open_secret,
)
from history.common.valid_values import find_nearest

UNPREFIXED_NAMES = {"DATABASE_URL", "KAFKA_BOOTSTRAP_SERVERS"}
# Not a setting for operators. It marks the processes of a demo that runs only because DATABASE_URL
# is unset.
UNASKED_DEMO = "_ANNALS_UNASKED_DEMO"
KAFKA_PREFIX = "ANNALS_KAFKA_"
LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "::1", "::ffff:127.0.0.1")


class SettingError(ExplainedError, ValueError):
    """Raised if a setting is wrong. The message names the setting and says what is valid."""


# Matches the part of msgspec's message that lists the valid words.
_CHOICES_PATTERN = re.compile(r"regex '\^\((\w+(?:\|\w+)+)\)\$'")
# Descriptions of the valid values of settings that have a format of their own.
_FORM_DESCRIPTIONS = {
    "archive_url": "a folder (/path or ./path), or a URL that begins with file://, s3:// or gs://",
    "runbook_url": "an address that begins with https:// or http://",
    "need_to_know": "the dotted path of a Python function, as package.module.function",
    "fallback_until": "a day, as 2026-12-31",
}
# A host as browsers send it, without its port.
_HOST_PATTERN = re.compile(r"\*|\.?[^\s/:@]+|\[?[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*\]?")
# A broker as librdkafka reads it. The default port is 9092.
_BROKER_PATTERN = re.compile(
    r"(?:(?:plaintext|ssl|sasl_plaintext|sasl_ssl)://)?(?:\[[0-9A-Fa-f:.%]+\]|[^\s:/@\[\]]+)"
    r"(?::(?P<port>[0-9]{1,5}))?",
    re.IGNORECASE,
)

_HOME_REMEDY = (
    "Let it name a folder that this process, and nobody else, may write, or set DATABASE_URL, "
    "KAFKA_BOOTSTRAP_SERVERS and ANNALS_SECRET_KEY."
)

WEB_THREADS = 16  # how many threads of a web process answer requests


def get_variable_name(field: str) -> str:
    """Return the name of the environment variable for a field of Settings."""
    name = field.upper()
    return name if name in UNPREFIXED_NAMES else f"ANNALS_{name}"


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Read the settings from environment variables. An empty value counts as unset.

    ANNALS_KAFKA_* and ANNALS_TEST_* are ignored here.

    Raises:
        SettingError: A value is wrong, or a name with ANNALS_ is unknown.
    """
    hints = get_type_hints(Settings)
    fields = {get_variable_name(name): name for name in hints}
    for name in environ:
        is_read_elsewhere = name.startswith((KAFKA_PREFIX, "ANNALS_TEST_"))
        if name.startswith("ANNALS_") and name not in fields and not is_read_elsewhere:
            suggestion = find_nearest(name, fields)
            question = f"Did you mean {suggestion}? " if suggestion is not None else ""
            raise SettingError(
                f"{name} is not a setting of Annals. {question}docs/settings.md lists all settings."
            )
    values: dict[str, object] = {}
    for name, field in fields.items():
        text = environ.get(name, "").strip()
        if text:
            values[field] = _split_list(text) if hints[field] == tuple[str, ...] else text
    try:
        settings = msgspec.convert(values, Settings, strict=False, dec_hook=to_path)
    except msgspec.ValidationError as error:
        raise SettingError(_explain_error(error)) from None
    if settings.database_url is not None:
        _check_database_url(settings.database_url)
    for host in settings.allowed_hosts:
        if not _HOST_PATTERN.fullmatch(host):
            raise SettingError(
                f"ANNALS_ALLOWED_HOSTS is wrong: {host!r} must be a host name or an address, "
                "without https:// and port, such as annals.bank.example. See docs/settings.md."
            )
    _check_brokers(settings.kafka_bootstrap_servers)
    _check_fallback(settings)
    return settings


def _check_database_url(url: str) -> None:
    """Refuse a DATABASE_URL that libpq cannot parse, or would misunderstand.

    Raises:
        SettingError: The DATABASE_URL is refused.
    """
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        parts = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except (ProgrammingError, UnicodeError):
        parts = {"host": "@"}
    for name in ("sslrootcert", "sslcert", "sslkey", "sslcrl", "passfile"):
        file = parts.get(name, "")
        if file not in ("", "system") and not Path(file).expanduser().is_file():
            raise SettingError(f"DATABASE_URL is wrong: its {name} is not a file: {file}.")
    ports = parts.get("port", "").split(",")
    if "@" in parts.get("host", "") + parts.get("dbname", "") or not all(
        port.isdigit() or not port for port in ports
    ):
        raise SettingError(
            "DATABASE_URL is wrong: it must be postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with "
            "% as %25, @ as %40, / as %2F and : as %3A in user and password. See docs/settings.md."
        )


def _check_brokers(servers: str | None) -> None:
    """Refuse a list of brokers that librdkafka would misunderstand.

    Raises:
        SettingError: The list is refused.
    """
    for server in _split_list(servers or ""):
        match = _BROKER_PATTERN.fullmatch(server)
        if match is None or not 0 < int(match["port"] or 9092) < 65_536:
            # Do not repeat a password that somebody wrote here.
            broker = "a server" if set("@?=") & set(servers or "") else repr(server)
            raise SettingError(
                f"KAFKA_BOOTSTRAP_SERVERS is wrong: {broker} must be HOST:PORT, with a port from "
                "1 to 65535. Set user and password with ANNALS_KAFKA_SASL_*. See docs/settings.md."
            )


def _check_fallback(settings: Settings) -> None:
    """Refuse an old service whose settings are incomplete, or whose address is not safe.

    Raises:
        SettingError: The settings are refused.
    """
    if settings.fallback_url is None:
        return
    message = "ANNALS_FALLBACK_URL is wrong: it must be https://HOST (http:// only on the loopback "
    message += "address), without user, query and fragment. See docs/migration.md."
    if not is_safe_url(settings.fallback_url):
        raise SettingError(message)
    if settings.fallback_until is None:
        raise SettingError(
            "ANNALS_FALLBACK_UNTIL is missing: with ANNALS_FALLBACK_URL it must be the last day on "
            "which the old service is asked, such as 2026-12-31. See docs/migration.md."
        )
    for name in ("fallback_token_file", "fallback_ca_file"):
        file: Path | None = getattr(settings, name)
        try:
            if file is not None and name == "fallback_token_file":
                refuse_open_secret(file)
            empty = file is not None and not read_bytes(file).strip()
        except FileError as error:
            raise SettingError(f"{get_variable_name(name)} is wrong: {error}.") from None
        if empty:
            raise SettingError(f"{get_variable_name(name)} is wrong: {file} is empty.")


def is_safe_url(url: str) -> bool:
    """Return whether a token may be sent to an address.

    The address must be https://HOST without user, query and fragment. On the loopback address
    http:// is allowed.
    """
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    secure = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)
    return usable and secure and not ("@" in parts.netloc or parts.query or parts.fragment)


def _split_list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def to_path(kind: type, value: object) -> object:
    """Convert a text to a path. A `dec_hook` of msgspec."""
    if kind is Path and isinstance(value, str):
        return Path(value).expanduser()
    raise TypeError(kind)


def _explain_error(error: msgspec.ValidationError) -> str:
    """Return a message that names a wrong setting and says which values it accepts.

    The message does not quote the wrong value, because the value may be a secret.
    """
    expected, _, where = explain_declaration_error(error, "text").partition(" - at `$.")
    field = where.rstrip("`").partition("[")[0]
    if choices := _CHOICES_PATTERN.search(str(error)):
        valid = choices[1].replace("|", ", ")
    else:
        valid = (
            _FORM_DESCRIPTIONS.get(field)
            or expected.removeprefix("Expected ").partition(", got ")[0]
        )
    return f"{get_variable_name(field)} is wrong: it must be {valid}. See docs/settings.md."


def load_secret_key(settings: Settings) -> str:
    """Return ANNALS_SECRET_KEY if it is set, or else the key in the file ANNALS_HOME/secret_key.

    Creates the file with a new key if it does not exist.

    Raises:
        SettingError: ANNALS_HOME cannot be used.
    """
    if settings.secret_key:
        return settings.secret_key
    refuse_untrusted_home(settings.home)
    path = settings.home / "secret_key"
    try:
        if not _read_if_exists(path):
            with private_files.hold_file_lock(path.with_suffix(".lock")):
                if not _read_if_exists(path):
                    private_files.write_private_file(path, secrets.token_urlsafe(48))
        return _read_if_exists(path)
    except OSError as error:
        raise make_home_error(error) from None


def _read_if_exists(path: Path) -> str:
    """Return the text of a file. Empty if it does not exist."""
    return path.read_text() if path.exists() else ""


# Entries of ANNALS_HOME that later commands trust. The folder `postgres` is one of them. The data
# in it is not, because it may belong to the user under whom PostgreSQL runs.
_OWN_ENTRIES: Final = ("secret_key", "postgres", "broker", "apache-kafka")


def refuse_untrusted_home(home: Path) -> None:
    """Refuse an ANNALS_HOME in which another user may have prepared the files that Annals trusts.

    The folder and the entries in `_OWN_ENTRIES` must belong to this user or to root. Other users
    may have the right to write in the folder, as in the volume of a container, but they must not
    have the right to write these entries.

    Raises:
        SettingError: A path does not meet these rules, or cannot be read.
    """
    for path in (home, *(home / entry for entry in _OWN_ENTRIES)):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise make_home_error(error) from None
        if status.st_uid not in (0, os.geteuid()):
            fault = f"{path} belongs to the user {status.st_uid}, who may have prepared it"
        elif status.st_mode & stat.S_IWOTH and path != home:
            fault = f"every user of this machine may write {path}"
        else:
            continue
        raise SettingError(f"ANNALS_HOME cannot be used: {fault}. {_HOME_REMEDY}")


def make_home_error(error: OSError) -> SettingError:
    """Make the error for an ANNALS_HOME in which a file cannot be created or read."""
    problem = explain_file_error(error, error.filename or "its folder")
    if isinstance(error, FileNotFoundError) and error.filename is None:
        problem = "the folder in which this process was started is gone"
    return SettingError(f"ANNALS_HOME cannot be used: {problem}. {_HOME_REMEDY}")


# Settings of librdkafka that the consumer fixes, each with the reason.
CONSUMER_SETTINGS = {
    "isolation.level": "Annals reads committed messages only; aborted ones are not versions",
    "partition.assignment.strategy": "the consumer's hand-over needs the eager strategies; "
    "an incremental one would let two consumers read a partition",
    "group.id": "use ANNALS_CONSUMER_GROUP",
    "enable.auto.commit": "offsets are committed after their rows",
    "enable.auto.offset.store": "offsets are committed after their rows",
    "auto.offset.reset": "the ledger says where reading goes on",
}


def read_librdkafka_settings(
    environ: Mapping[str, str], file: Path | None = None
) -> dict[str, str]:
    """Read the settings of librdkafka from the properties file and from ANNALS_KAFKA_* variables.

    A variable overrides the file: ANNALS_KAFKA_SASL_MECHANISM is sasl.mechanism.

    Raises:
        SettingError: The file is wrong, or has one of the CONSUMER_SETTINGS.
    """
    properties = _read_properties(file) | {
        name.removeprefix(KAFKA_PREFIX).lower().replace("_", "."): value
        for name, value in environ.items()
        if name.startswith(KAFKA_PREFIX) and value
    }
    for name, reason in CONSUMER_SETTINGS.items():
        if name in properties:
            raise SettingError(
                f"{name} cannot be set for Kafka ({KAFKA_PREFIX}"
                f"{name.upper().replace('.', '_')} or ANNALS_LIBRDKAFKA_FILE): {reason}."
            )
    return properties


# Settings of librdkafka that are secrets; `ssl.key.location` only names a file.
_SECRET_PATTERN = re.compile(
    r"password|secret|^ssl\.key\.pem$|^sasl\.oauthbearer\.config$|^sasl\.jaas"
)


def _read_properties(file: Path | None) -> dict[str, str]:
    if file is None:
        return {}
    try:
        lines = read_text(file).splitlines()
    except FileError as error:
        raise SettingError(f"ANNALS_LIBRDKAFKA_FILE is wrong: {error}.") from None
    properties = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise SettingError(
                f"ANNALS_LIBRDKAFKA_FILE is wrong: line {number} of {file} is not name=value."
            )
        properties[name.strip()] = value.strip()
    if any(_SECRET_PATTERN.search(name) for name in properties):
        try:
            refuse_open_secret(file)
        except FileError as error:
            raise SettingError(f"ANNALS_LIBRDKAFKA_FILE is wrong: {error}.") from None
    return properties
