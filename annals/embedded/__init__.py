"""The embedded servers under ANNALS_HOME, and the addresses of running ones."""

import sys
from pathlib import Path

from annals import env
from annals.embedded import logins
from annals.embedded.broker import Broker
from annals.embedded.postgres import Postgres

__all__ = [
    "Broker",
    "Postgres",
    "bootstrap_servers",
    "broker_server",
    "database_server",
    "database_url",
    "logins",
]


def database_server(home: str | Path) -> Postgres:
    """The PostgreSQL of that ANNALS_HOME, running or not. Raises env.SettingError."""
    env.refuse_others_home(Path(home))
    return Postgres(Path(home) / "postgres")


def broker_server(home: str | Path) -> Broker:
    """The broker of that ANNALS_HOME, running or not. Raises env.SettingError."""
    env.refuse_others_home(Path(home))
    return Broker(Path(home) / "broker")


def database_url(home: str | Path) -> str:
    """The URI of the embedded PostgreSQL, as the owner of the tables. Starts it."""
    server = database_server(home)
    _start(server, "PostgreSQL")
    return server.url(login=logins.OWNER)


def bootstrap_servers(home: str | Path) -> str:
    """The address of the embedded broker. Starts it if it does not run, and leaves it running."""
    server = broker_server(home)
    _start(server, "broker")
    return server.bootstrap_servers()


def _start(server: Postgres | Broker, what: str) -> None:
    if server.start():
        sys.stderr.write(
            f"annals: started embedded {what} on port {server.port()} in {server.home} (to stop "
            "it: annals embedded stop)\n"
        )
