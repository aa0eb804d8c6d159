"""Prepares a process before Django starts: checks settings, and starts embedded servers."""

import logging
import os
import secrets
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress

from annals.configuration import env

COMMANDS_WITHOUT_DATABASE = frozenset(
    {"help", "embedded", "compilemessages", "makemessages", "collectstatic", "simulate"}
)
KAFKA_COMMANDS = frozenset({"consume", "simulate", "ledger", "trace", "heal"})
# These only ask the broker. To start an empty one would hide that the real one is away.
ASKING_COMMANDS = frozenset({"ledger", "trace"})
LASTING_COMMANDS = frozenset({"consume", "runserver"})


def check_settings(arguments: Sequence[str] = ()) -> env.Settings:
    """Check all settings for this command line, and return them. Exits with 1 if one is wrong."""
    try:
        settings = env.read_settings(os.environ)
        env.read_librdkafka_settings(os.environ, settings.librdkafka_file)
        refuse_open_demo(settings, _find_bind_hosts(arguments))
        _refuse_wrong_kinds(settings)
        if settings.trusted_proxies:
            from annals.access import client_address

            client_address.load_trusted_proxies(settings)
        if settings.oidc_file is not None:
            # Imported late: most starts have no such file.
            from annals.access.oidc import providers

            providers.load_providers(settings)
    except env.SettingError as error:
        sys.exit(f"annals: {error}")
    return settings


def _refuse_wrong_kinds(settings: env.Settings) -> None:
    """Refuse a wrong declaration of kinds, and one that contradicts the other settings."""
    from history import kinds

    try:
        declared = kinds.load_kinds(os.environ)
    except kinds.KindsError as error:
        raise env.SettingError(str(error)) from None
    alone = [kind.name for kind in declared if kind.alone]
    if alone and settings.need_to_know is not None:
        raise env.SettingError(
            "ANNALS_NEED_TO_KNOW is set, which decides for each application who may open it, but "
            f"the kind {alone[0]!r} of ANNALS_ENTITIES_FILE stands alone, in no application. Give "
            "it a parent, or unset ANNALS_NEED_TO_KNOW. See docs/kinds.md."
        )


def _print_uncaught(error: BaseException) -> None:
    """Print an error that ends a process or a thread, without values of rows."""
    from history.common.error_text import format_trace, is_of_database

    if is_of_database(error):
        print(format_trace(error), file=sys.stderr)
    else:
        sys.__excepthook__(type(error), error, error.__traceback__)


def prepare_environment(arguments: Sequence[str]) -> None:
    """Check the settings, and start the embedded servers that the command needs.

    An embedded server takes the place of an unset DATABASE_URL or KAFKA_BOOTSTRAP_SERVERS. Exits
    with 1 if a setting is wrong or a server does not start.

    Args:
        arguments: The command line after the program's name.
    """
    sys.excepthook = lambda _kind, error, _stack: _print_uncaught(error)
    threading.excepthook = lambda args: _print_uncaught(args.exc_value or args.exc_type())
    settings = check_settings(arguments)
    words = [word for word in arguments if not word.startswith("-")] or ["help"]
    command = "heal" if "heal" in words else words[0]
    asks_for_help = bool({"-h", "--help"} & set(arguments))
    if asks_for_help or command == "help":  # help must not leave a key in the present folder
        os.environ["ANNALS_SECRET_KEY"] = settings.secret_key or secrets.token_urlsafe(48)
    if asks_for_help:
        return
    if command not in LASTING_COMMANDS:  # a command reports a missing connection once, when it ends
        logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
        if settings.log_level != "DEBUG":
            logging.getLogger("ingest.kafka.client").setLevel(logging.CRITICAL)
    if command == "runserver":
        try:
            env.load_secret_key(settings)  # before a request needs it
        except env.SettingError as error:
            sys.exit(f"annals: {error}")
    if settings.database_url is not None and settings.kafka_bootstrap_servers is not None:
        return
    from annals.embedded.process import EmbeddedError

    try:
        _start_missing(settings, command)
    except (EmbeddedError, env.SettingError) as error:
        sys.exit(f"annals: {error}")
    except OSError as error:
        sys.exit(f"annals: {env.make_home_error(error)}")


def _start_missing(settings: env.Settings, command: str) -> None:
    """Start the embedded servers that the command needs. Raises EmbeddedError."""
    from annals import embedded

    if settings.database_url is None:
        if "ANNALS_DEMO" not in os.environ:
            os.environ |= {"ANNALS_DEMO": "true", env.UNASKED_DEMO: "true"}
            os.environ.setdefault("ANNALS_LANGUAGE", "auto")  # as `scripts/demo`
        if command not in COMMANDS_WITHOUT_DATABASE:
            os.environ["DATABASE_URL"] = embedded.start_database(settings.home)
    if settings.kafka_bootstrap_servers is not None or command not in KAFKA_COMMANDS:
        return
    if command not in ASKING_COMMANDS or embedded.get_broker_server(settings.home).is_running():
        os.environ["KAFKA_BOOTSTRAP_SERVERS"] = embedded.start_broker(settings.home)
        # The embedded broker lets a new member wait for half of this time.
        os.environ.setdefault("ANNALS_KAFKA_SESSION_TIMEOUT_MS", "6000")


def refuse_open_demo(settings: env.Settings, binds: Sequence[str]) -> None:
    """Refuse a demo that other machines can reach, as everybody knows its logins.

    Allowed is a demo that a setting asks for and that uses the embedded PostgreSQL.

    Args:
        settings: The settings of the process.
        binds: The hosts on which it listens.

    Raises:
        env.SettingError: Other machines can reach the demo.
    """
    database_url = settings.database_url
    if database_url is None and (settings.demo or "ANNALS_DEMO" in os.environ):
        return
    if database_url is not None and not settings.demo:
        return
    outside_hosts = sorted(set(settings.allowed_hosts) - set(env.LOOPBACK))
    remote_hosts = (
        []
        if database_url is None
        else [host for host in list_hosts(database_url) if host not in env.LOOPBACK]
    )
    signs = [
        *(f"DATABASE_URL leads to {host}" for host in remote_hosts),
        *(["ANNALS_HTTPS is set"] if settings.https else []),
        *([f"ANNALS_ALLOWED_HOSTS has {', '.join(outside_hosts)}"] if outside_hosts else []),
        *(f"{host} can be reached from outside" for host in binds if host not in env.LOOPBACK),
    ]
    if signs and database_url is not None:
        raise env.SettingError(
            f"ANNALS_DEMO=true makes logins whose password is their name, but {signs[0]}. Unset "
            "ANNALS_DEMO; a demo with a database of its own is for this machine only."
        )
    if signs:
        raise env.SettingError(
            f"DATABASE_URL is unset, which starts the demo with its well-known logins, but "
            f"{signs[0]}. Set DATABASE_URL for production, or ANNALS_DEMO=true for an open demo."
        )


def refuse_owner(settings: env.Settings, binds: Sequence[str]) -> None:
    """A web that others can reach only reads. One that cannot be asked yet is checked, and warned
    of, by each worker. binds: the hosts listened on. Raises env.SettingError."""
    url = settings.database_url
    if url is None or settings.demo:
        return
    outside = {*list_hosts(url), *binds, *settings.allowed_hosts} - set(env.LOOPBACK)
    if not outside and not settings.https:
        return
    # Imported late: only the web's master process asks.
    import psycopg

    from history.store.database import privileges

    with suppress(psycopg.OperationalError), psycopg.connect(url, connect_timeout=3) as connection:
        if (complaint := privileges.explain_wrong_login(connection)) is not None:
            raise env.SettingError(complaint)


def list_hosts(url: str) -> list[str]:
    """Return the hosts to which libpq connects for a DATABASE_URL. A local socket has none."""
    # Imported late: most commands need no database.
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        parameters = conninfo_to_dict(url)
    except ProgrammingError:
        return []  # no connection is possible, and the first one reports why
    host_lists = [
        str(parameters.get(name) or os.environ.get(f"PG{name.upper()}") or "")
        for name in ("host", "hostaddr")
    ]
    hosts = [host for names in host_lists for host in names.split(",")]
    return [host for host in hosts if host and not host.startswith(("/", "@"))]


def _find_bind_hosts(arguments: Sequence[str]) -> list[str]:
    """Return the host of `runserver HOST:PORT`."""
    if "runserver" not in arguments:
        return []
    words = [
        argument
        for argument in arguments
        if not argument.startswith("-") and argument != "runserver"
    ]
    return [argument.rpartition(":")[0] for argument in words if ":" in argument]
