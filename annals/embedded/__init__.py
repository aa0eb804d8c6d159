"""The embedded PostgreSQL and broker under ANNALS_HOME.

Both servers outlive the command that started them. `server_process` starts, stops and finds a
server, `postgres` and `broker` define the two, and `process` calls the operating system.
"""

import sys
from pathlib import Path

from annals.configuration import env
from annals.embedded import logins
from annals.embedded.broker import EmbeddedBroker
from annals.embedded.postgres import EmbeddedPostgres

__all__ = [
    "EmbeddedBroker",
    "EmbeddedPostgres",
    "get_broker_server",
    "get_database_server",
    "logins",
    "start_broker",
    "start_database",
]


def get_database_server(home: str | Path) -> EmbeddedPostgres:
    """Return the PostgreSQL of an ANNALS_HOME, running or not.

    Raises:
        env.SettingError: The folder cannot be used.
    """
    env.refuse_untrusted_home(Path(home))
    return EmbeddedPostgres(Path(home) / "postgres")


def get_broker_server(home: str | Path) -> EmbeddedBroker:
    """Return the broker of an ANNALS_HOME, running or not.

    Raises:
        env.SettingError: The folder cannot be used.
    """
    env.refuse_untrusted_home(Path(home))
    return EmbeddedBroker(Path(home) / "broker")


def start_database(home: str | Path) -> str:
    """Start the embedded PostgreSQL unless it runs, and return the URI for the tables' owner."""
    server = get_database_server(home)
    _start_server(server, "PostgreSQL")
    return server.build_url(login=logins.OWNER)


def start_broker(home: str | Path) -> str:
    """Start the embedded broker unless it runs, and return its address. It stays running."""
    server = get_broker_server(home)
    _start_server(server, "broker")
    return server.get_bootstrap_servers()


def _start_server(server: EmbeddedPostgres | EmbeddedBroker, name: str) -> None:
    if server.start():
        sys.stderr.write(
            f"annals: started embedded {name} on port {server.get_port()} in {server.home} (to "
            "stop it: annals embedded stop)\n"
        )
