"""Runs before Django starts: checks the settings, finds or starts the embedded servers."""

import logging
import os
import secrets
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress

from annals import env

WITHOUT_DATABASE = frozenset(
    {"help", "embedded", "compilemessages", "makemessages", "collectstatic", "simulate"}
)
WITH_KAFKA = frozenset({"consume", "simulate", "ledger", "trace", "heal"})
# They only ask the broker: an empty one would hide that the real one is away.
ASKING = frozenset({"ledger", "trace"})
PROCESSES = frozenset({"consume", "runserver"})


def checked_settings(arguments: Sequence[str] = ()) -> env.Settings:
    """The settings, fit for this command line. Exits with 1 and a message if one is wrong."""
    try:
        settings = env.read(os.environ)
        env.librdkafka(os.environ, settings.librdkafka_file)
        refuse_open_demo(settings, _binds(arguments))
        _refuse_wrong_kinds(settings)
        if settings.trusted_proxies:
            from annals.access import address

            address.trusted(settings)
        if settings.oidc_file is not None:
            # Imported late: most starts have no such file.
            from annals.access.oidc import providers

            providers.given(settings)
    except env.SettingError as error:
        sys.exit(f"annals: {error}")
    return settings


def _refuse_wrong_kinds(settings: env.Settings) -> None:
    """Refuse a wrong declaration of the kinds, and one that the other settings do not fit."""
    from history import kinds

    try:
        declared = kinds.given(os.environ)
    except kinds.KindsError as error:
        raise env.SettingError(str(error)) from None
    alone = [kind.name for kind in declared if kind.alone]
    if alone and settings.need_to_know is not None:
        raise env.SettingError(
            "ANNALS_NEED_TO_KNOW is set, which decides for each application who may open it, but "
            f"the kind {alone[0]!r} of ANNALS_ENTITIES_FILE stands alone, in no application. Give "
            "it a parent, or unset ANNALS_NEED_TO_KNOW. See docs/kinds.md."
        )


def _uncaught(error: BaseException) -> None:
    """Print an error that ends a process or a thread."""
    from history.base.error_text import is_of_database, trace

    if is_of_database(error):
        print(trace(error), file=sys.stderr)
    else:
        sys.__excepthook__(type(error), error, error.__traceback__)


def prepare(arguments: Sequence[str]) -> None:
    """Check the settings, and start the embedded server of an unset DATABASE_URL or
    KAFKA_BOOTSTRAP_SERVERS if the command needs it. arguments: after the program's name. Exits with
    1."""
    sys.excepthook = lambda _kind, error, _stack: _uncaught(error)
    threading.excepthook = lambda args: _uncaught(args.exc_value or args.exc_type())
    settings = checked_settings(arguments)
    words = [word for word in arguments if not word.startswith("-")] or ["help"]
    command = "heal" if "heal" in words else words[0]
    helps = bool({"-h", "--help"} & set(arguments))
    if helps or command == "help":  # they leave no key where somebody stands
        os.environ["ANNALS_SECRET_KEY"] = settings.secret_key or secrets.token_urlsafe(48)
    if helps:
        return
    if command not in PROCESSES:  # a command says once why it got no connection, as it ends
        logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
        if settings.log_level != "DEBUG":
            logging.getLogger("ingest.source.client").setLevel(logging.CRITICAL)
    if command == "runserver":
        try:
            env.secret_key(settings)  # before a request needs it
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
        sys.exit(f"annals: {env.unusable_home(error)}")


def _start_missing(settings: env.Settings, command: str) -> None:
    """Start what the command needs and nobody named. Raises EmbeddedError."""
    from annals import embedded

    if settings.database_url is None:
        if "ANNALS_DEMO" not in os.environ:
            os.environ |= {"ANNALS_DEMO": "true", env.UNASKED_DEMO: "true"}
            os.environ.setdefault("ANNALS_LANGUAGE", "auto")  # as `scripts/demo`
        if command not in WITHOUT_DATABASE:
            os.environ["DATABASE_URL"] = embedded.database_url(settings.home)
    if settings.kafka_bootstrap_servers is not None or command not in WITH_KAFKA:
        return
    if command not in ASKING or embedded.broker_server(settings.home).running():
        os.environ["KAFKA_BOOTSTRAP_SERVERS"] = embedded.bootstrap_servers(settings.home)
        # The embedded broker lets a new member wait for half of this time.
        os.environ.setdefault("ANNALS_KAFKA_SESSION_TIMEOUT_MS", "6000")


def refuse_open_demo(settings: env.Settings, binds: Sequence[str]) -> None:
    """A demo, whose logins everybody knows, must stay on this machine if nobody asked for it or its
    database is not the embedded one. binds: the hosts listened on. Raises env.SettingError."""
    real = settings.database_url
    if real is None and (settings.demo or "ANNALS_DEMO" in os.environ):
        return
    if real is not None and not settings.demo:
        return
    outside = sorted(set(settings.allowed_hosts) - set(env.LOOPBACK))
    away = [] if real is None else [each for each in hosts(real) if each not in env.LOOPBACK]
    signs = [
        *(f"DATABASE_URL leads to {each}" for each in away),
        *(["ANNALS_HTTPS is set"] if settings.https else []),
        *([f"ANNALS_ALLOWED_HOSTS has {', '.join(outside)}"] if outside else []),
        *(f"{each} can be reached from outside" for each in binds if each not in env.LOOPBACK),
    ]
    if signs and real is not None:
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
    outside = {*hosts(url), *binds, *settings.allowed_hosts} - set(env.LOOPBACK)
    if not outside and not settings.https:
        return
    # Imported late: only the web's master process asks.
    import psycopg

    from history.database import privileges

    with suppress(psycopg.OperationalError), psycopg.connect(url, connect_timeout=3) as connection:
        if (why := privileges.complaint(connection)) is not None:
            raise env.SettingError(why)


def hosts(url: str) -> list[str]:
    """The hosts to which libpq connects for a DATABASE_URL; none for a socket of this machine."""
    # Imported late: most commands need no database.
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        given = conninfo_to_dict(url)
    except ProgrammingError:
        return []  # nobody can connect with it; the first connection says why
    named = [
        str(given.get(name) or os.environ.get(f"PG{name.upper()}") or "")
        for name in ("host", "hostaddr")
    ]
    found = [each for names in named for each in names.split(",")]
    return [each for each in found if each and not each.startswith(("/", "@"))]


def _binds(arguments: Sequence[str]) -> list[str]:
    """The host of `runserver HOST:PORT`."""
    if "runserver" not in arguments:
        return []
    words = [each for each in arguments if not each.startswith("-") and each != "runserver"]
    return [each.rpartition(":")[0] for each in words if ":" in each]
