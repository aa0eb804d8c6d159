"""The servers that Annals brings along, under ANNALS_HOME: addresses of running ones."""

import sys
from pathlib import Path

from annals.embedded.broker import Broker
from annals.embedded.postgres import Postgres

__all__ = [
    "Broker",
    "Postgres",
    "bootstrap_servers",
    "broker_server",
    "database_server",
    "database_url",
]


def database_server(home: str | Path) -> Postgres:
    """The PostgreSQL of that ANNALS_HOME, running or not."""
    return Postgres(Path(home) / "postgres")


def broker_server(home: str | Path) -> Broker:
    """The broker of that ANNALS_HOME, running or not."""
    return Broker(Path(home) / "broker")


def database_url(home: str | Path) -> str:
    """The URI of the embedded PostgreSQL, started (and left running) where it was not running."""
    server = database_server(home)
    if server.start():
        _tell(f"started embedded PostgreSQL on port {server.port()} in {server.home}")
    return server.url()


def bootstrap_servers(home: str | Path) -> str:
    """The address of the embedded broker, started (and left running) where it was not running."""
    server = broker_server(home)
    if server.start():
        _tell(f"started embedded broker on port {server.port()} in {server.home}")
    return server.bootstrap_servers()


def _tell(text: str) -> None:
    sys.stderr.write(f"annals: {text} (manage.py embedded stop)\n")
