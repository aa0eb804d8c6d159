"""Prepares a process before Django starts: checks settings, and starts embedded servers."""

import logging
import os
import secrets
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress

from annals.configuration import env
from annals.configuration.fields import Settings

COMMANDS_WITHOUT_DATABASE = frozenset(
    {"help", "embedded", "compilemessages", "makemessages", "collectstatic", "simulate"}
)
KAFKA_COMMANDS = frozenset({"consume", "simulate", "ledger", "trace", "heal"})
# These commands only read what the broker has. If an empty broker were started for them, nobody
# would notice that the real broker is missing.
BROKER_READING_COMMANDS = frozenset({"ledger", "trace"})
LASTING_COMMANDS = frozenset({"consume", "runserver"})


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
    if asks_for_help or command == "help":  # help must not create a file with a generated key
        os.environ["ANNALS_SECRET_KEY"] = settings.secret_key or secrets.token_urlsafe(48)
    if asks_for_help:
        return
    # A short command reports a missing connection once, when it ends. The log need not repeat it.
    if command not in LASTING_COMMANDS:
        logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
        if settings.log_level != "DEBUG":
            logging.getLogger("ingest.kafka.client").setLevel(logging.CRITICAL)
    if command == "runserver":
        try:
            env.load_secret_key(settings)  # so that it exists before the first request
        except env.SettingError as error:
            sys.exit(f"annals: {error}")
    if settings.database_url is not None and settings.kafka_bootstrap_servers is not None:
        return
    from annals.embedded.process import EmbeddedError

    try:
        _start_missing_servers(settings, command)
    except (EmbeddedError, env.SettingError) as error:
        sys.exit(f"annals: {error}")
    except OSError as error:
        sys.exit(f"annals: {env.make_home_error(error)}")


def check_settings(arguments: Sequence[str] = ()) -> Settings:
    """Check all settings for this command line, and return them.

    If a setting is wrong, print the reason and exit with 1.
    """
    try:
        settings = env.read_settings(os.environ)
        env.read_librdkafka_settings(os.environ, settings.librdkafka_file)
        refuse_open_demo(settings, _find_bind_hosts(arguments))
        _refuse_wrong_kinds(settings)
        if settings.trusted_proxies:
            from annals.access import client_address

            client_address.load_trusted_proxies(settings)
        if settings.oidc_file is not None:
            # Imported late: most installations have no such file.
            from annals.access.oidc import providers

            providers.load_providers(settings)
    except env.SettingError as error:
        sys.exit(f"annals: {error}")
    return settings


def refuse_open_demo(settings: Settings, bind_hosts: Sequence[str]) -> None:
    """Refuse to start a demo that other machines can reach, because everybody knows its logins.

    Such a demo is allowed if it uses the embedded PostgreSQL and ANNALS_DEMO is set explicitly.

    Args:
        bind_hosts: The hosts on which this process listens.

    Raises:
        env.SettingError: Other machines can reach the demo.
    """
    database_url = settings.database_url
    if database_url is None and (settings.demo or "ANNALS_DEMO" in os.environ):
        return
    if database_url is not None and not settings.demo:
        return
    remote_names = sorted(set(settings.allowed_hosts) - set(env.LOOPBACK))
    database_hosts = (
        []
        if database_url is None
        else [host for host in list_hosts(database_url) if host not in env.LOOPBACK]
    )
    signs = [
        *(f"DATABASE_URL leads to {host}" for host in database_hosts),
        *(["ANNALS_HTTPS is set"] if settings.https else []),
        *([f"ANNALS_ALLOWED_HOSTS has {', '.join(remote_names)}"] if remote_names else []),
        *(f"{host} can be reached from outside" for host in bind_hosts if host not in env.LOOPBACK),
    ]
    if signs and database_url is not None:
        raise env.SettingError(
            f"ANNALS_DEMO=true creates logins with their names as passwords, but {signs[0]}: "
            "others could log in. Unset ANNALS_DEMO, or make sure that the demo and its database "
            "can be reached only from this machine."
        )
    if signs:
        raise env.SettingError(
            "without DATABASE_URL Annals would run the demo with its well-known logins, but "
            f"{signs[0]}. Set DATABASE_URL for production, or ANNALS_DEMO=true for an open demo."
        )


def refuse_owner_login(settings: Settings, bind_hosts: Sequence[str]) -> None:
    """Refuse to start the web server with too many database rights if other machines can reach it.

    If the database does not answer yet, the web server may start. Then each worker process of the
    web server checks the database login later, and logs a warning.

    Args:
        bind_hosts: The hosts on which this process listens.

    Raises:
        env.SettingError: The login of DATABASE_URL has more rights than a web server may have.
    """
    url = settings.database_url
    if url is None or settings.demo:
        return
    remote_hosts = {*list_hosts(url), *bind_hosts, *settings.allowed_hosts} - set(env.LOOPBACK)
    if not remote_hosts and not settings.https:
        return
    # Imported late: only the master process of the web checks this.
    import psycopg

    from history.store.database import privileges

    with suppress(psycopg.OperationalError), psycopg.connect(url, connect_timeout=3) as connection:
        if (complaint := privileges.explain_wrong_login(connection)) is not None:
            raise env.SettingError(complaint)


def _print_uncaught(error: BaseException) -> None:
    """Print an error that ends the process or a thread, without quoting values of rows."""
    from history.common.error_text import format_trace, is_database_error

    if is_database_error(error):
        print(format_trace(error), file=sys.stderr)
    else:
        sys.__excepthook__(type(error), error, error.__traceback__)


def _start_missing_servers(settings: Settings, command: str) -> None:
    """Start the embedded servers that the command needs, and set their addresses in os.environ.

    The embedded PostgreSQL is started only if DATABASE_URL is not set, and the embedded broker only
    if KAFKA_BOOTSTRAP_SERVERS is not set.

    Raises:
        EmbeddedError: A server does not start.
    """
    from annals import embedded

    if settings.database_url is None:
        if "ANNALS_DEMO" not in os.environ:
            os.environ |= {"ANNALS_DEMO": "true", env.UNASKED_DEMO: "true"}
            os.environ.setdefault("ANNALS_LANGUAGE", "auto")  # as in `scripts/demo`
        if command not in COMMANDS_WITHOUT_DATABASE:
            os.environ["DATABASE_URL"] = embedded.start_database(settings.home)
    if settings.kafka_bootstrap_servers is not None or command not in KAFKA_COMMANDS:
        return
    if (
        command not in BROKER_READING_COMMANDS
        or embedded.get_broker_server(settings.home).is_running()
    ):
        os.environ["KAFKA_BOOTSTRAP_SERVERS"] = embedded.start_broker(settings.home)
        # At the embedded broker, a new group member waits for half of this time.
        os.environ.setdefault("ANNALS_KAFKA_SESSION_TIMEOUT_MS", "6000")


def _refuse_wrong_kinds(settings: Settings) -> None:
    """Refuse a declaration of kinds that has mistakes, or that contradicts the other settings.

    Raises:
        env.SettingError: The declaration is refused.
    """
    from history import kinds

    try:
        declared = kinds.load_kinds(os.environ)
    except kinds.KindsError as error:
        raise env.SettingError(str(error)) from None
    standalone = [kind.name for kind in declared if kind.is_standalone]
    if standalone and settings.need_to_know is not None:
        raise env.SettingError(
            "ANNALS_NEED_TO_KNOW names a rule about applications, but documents of the kind "
            f"{standalone[0]!r} in ANNALS_ENTITIES_FILE do not belong to an application. Give the "
            "kind a parent, or unset ANNALS_NEED_TO_KNOW. See docs/kinds.md."
        )


def _find_bind_hosts(arguments: Sequence[str]) -> list[str]:
    """Return the hosts of the arguments `HOST:PORT`. Empty for other commands than `runserver`."""
    if "runserver" not in arguments:
        return []
    words = [
        argument
        for argument in arguments
        if not argument.startswith("-") and argument != "runserver"
    ]
    return [argument.rpartition(":")[0] for argument in words if ":" in argument]


def list_hosts(url: str) -> list[str]:
    """Return the hosts to which libpq connects for a DATABASE_URL; none for a local socket."""
    # Imported late: most commands need no database.
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        parameters = conninfo_to_dict(url)
    except ProgrammingError:
        return []  # no connection is possible, and the first attempt reports why
    host_lists = [
        str(parameters.get(name) or os.environ.get(f"PG{name.upper()}") or "")
        for name in ("host", "hostaddr")
    ]
    hosts = [host for names in host_lists for host in names.split(",")]
    return [host for host in hosts if host and not host.startswith(("/", "@"))]
