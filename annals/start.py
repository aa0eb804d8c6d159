"""Runs before Django starts: checks the settings, finds or starts the embedded servers."""

import logging
import os
import sys
import threading
from collections.abc import Sequence
from types import TracebackType

from annals import env, librdkafka

WITHOUT_DATABASE = frozenset(
    {"help", "embedded", "compilemessages", "makemessages", "collectstatic", "simulate", "version"}
)
WITH_KAFKA = frozenset({"consume", "simulate", "ledger", "trace"})
PROCESSES = frozenset({"consume", "runserver"})

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]", "::1", "::ffff:127.0.0.1")


def checked_settings(arguments: Sequence[str] = ()) -> env.Settings:
    """The settings, fit for this command line. Exits with 1 and a message if one is wrong."""
    try:
        settings = env.read(os.environ)
        librdkafka.given(os.environ, settings.librdkafka_file)
        refuse_open_demo(settings, _binds(arguments))
        _refuse_missing(settings)
        if settings.quota_roles:
            from annals.access import roles

            roles.quotas(settings)
        if settings.trusted_proxies or settings.operator_networks:
            from annals.access import address

            address.trusted(settings)
            address.of_operators(settings)
        if settings.oidc_file is not None:
            # Imported late: most starts have no such file.
            from annals.access.oidc import providers

            providers.given(settings)
    except env.SettingError as error:
        sys.exit(f"annals: {error}")
    return settings


def _refuse_missing(settings: env.Settings) -> None:
    """Refuse a declaration that only the consumer reads, and would miss when it starts."""
    file = settings.envelopes_file
    if file is not None and not file.is_file():
        raise env.SettingError(
            f"ANNALS_ENVELOPES_FILE is wrong: there is no file {file}. See docs/settings.md."
        )


def _uncaught(kind: type[BaseException], error: BaseException, stack: TracebackType | None) -> None:
    """Print an error that ends the process; of a database error nothing that quotes a row."""
    from history import schema
    from history.error_text import describe, is_forbidden, is_of_database, trace, unreachable

    if is_forbidden(error):
        print(
            f"annals: the database login of this process may not do that ({describe(error)}). "
            "docs/operations.md says which login runs which command.",
            file=sys.stderr,
        )
    elif (why := unreachable(error)) is not None:
        print(
            f"annals: {why}. Check DATABASE_URL and whether PostgreSQL runs.",
            file=sys.stderr,
        )
    elif (why := schema.behind(error)) is not None:
        print(f"annals: {why}", file=sys.stderr)
    elif is_of_database(error):
        print(trace(error), file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, stack)


def prepare(arguments: Sequence[str]) -> None:
    """Check the settings. Then, if the command needs a server whose DATABASE_URL or
    KAFKA_BOOTSTRAP_SERVERS is unset, start the embedded one and set the variable.

    arguments: the command line after the program's name. Exits with 1 and a message if a setting
    is wrong.
    """
    sys.excepthook = _uncaught
    threading.excepthook = lambda args: _uncaught(
        args.exc_type, args.exc_value or args.exc_type(), args.exc_traceback
    )
    settings = checked_settings(arguments)
    command = next((word for word in arguments if not word.startswith("-")), "help")
    if {"-h", "--help"} & set(arguments):
        return
    from annals import embedded

    if command not in PROCESSES:  # a command says once why it got no connection, as it ends
        logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
    if settings.database_url is None:
        if "ANNALS_DEMO" not in os.environ:
            os.environ |= {"ANNALS_DEMO": "true", env.UNASKED_DEMO: "true"}
        if command not in WITHOUT_DATABASE:
            os.environ["DATABASE_URL"] = embedded.database_url(settings.home)
    if settings.kafka_bootstrap_servers is None and command in WITH_KAFKA:
        os.environ["KAFKA_BOOTSTRAP_SERVERS"] = embedded.bootstrap_servers(settings.home)
        # The embedded broker lets a new member wait for half of this time.
        os.environ.setdefault("ANNALS_KAFKA_SESSION_TIMEOUT_MS", "6000")


def refuse_open_demo(settings: env.Settings, binds: Sequence[str]) -> None:
    """A demo that nobody asked for has logins that everybody knows: it must stay on this machine.

    binds: the hosts that the server listens on. Raises env.SettingError.
    """
    if settings.database_url is not None or settings.demo or "ANNALS_DEMO" in os.environ:
        return
    outside = sorted(set(settings.allowed_hosts) - set(LOOPBACK_HOSTS))
    signs = [
        *(["ANNALS_HTTPS is set"] if settings.https else []),
        *([f"ANNALS_ALLOWED_HOSTS has {', '.join(outside)}"] if outside else []),
        *(f"{each} can be reached from outside" for each in binds if each not in LOOPBACK_HOSTS),
    ]
    if signs:
        raise env.SettingError(
            f"DATABASE_URL is unset, which starts the demo with its well-known logins, but "
            f"{signs[0]}. Set DATABASE_URL for production, or ANNALS_DEMO=true for an open demo."
        )


def _binds(arguments: Sequence[str]) -> list[str]:
    """The host of `runserver HOST:PORT`."""
    if "runserver" not in arguments:
        return []
    words = [each for each in arguments if not each.startswith("-") and each != "runserver"]
    return [each.rpartition(":")[0] for each in words if ":" in each]
