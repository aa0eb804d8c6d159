"""Database connections with the rights of the web server or of the consumer."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import psycopg
import pytest
from django.conf import settings
from django.db import connection
from msgspec.structs import replace
from psycopg import errors
from psycopg.conninfo import make_conninfo

from annals.access.grants import CONSUMER
from ingest.store.session import open_connection

Plain = psycopg.Connection[tuple[object, ...]]
PASSWORD = "secret"


def as_role(role: str) -> Plain:
    """Return a connection of the tables' owner, limited to the rights of `role` by SET ROLE."""
    session = open_connection("test-grants")
    session.execute(f"SET ROLE {role}")
    return session


as_consumer = partial(as_role, CONSUMER)


@contextmanager
def act_as(role: str) -> Iterator[Plain]:
    """Yield a connection with only the rights of `role`, and close it at the end of the block."""
    with as_role(role) as session:
        yield session


def is_refused(plain: Plain, statement: str) -> bool:
    """Return whether PostgreSQL refuses the statement because a right is missing."""
    try:
        plain.execute(statement)
    except errors.InsufficientPrivilege:
        return True
    return False


@contextmanager
def create_member(role: str) -> Iterator[str]:
    """Create a database login that is a member of `role`, and yield the name of the login.

    The password of the login is PASSWORD.
    """
    login = f"{role}_login"
    with open_connection("test-owner") as owner:
        owner.execute(f"CREATE ROLE {login} LOGIN PASSWORD '{PASSWORD}' IN ROLE {role}")
    try:
        yield login
    finally:
        with open_connection("test-owner") as owner:
            owner.execute(f"DROP ROLE {login}")


def build_url(login: str) -> str:
    return make_conninfo(
        settings.ANNALS.database_url or "",
        dbname=connection.settings_dict["NAME"],
        user=login,
        password=PASSWORD,
    )


@contextmanager
def log_in_as(role: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Let Django and the commands of this process connect with a new database login.

    The login is a member of `role`. Yield the name of the login.
    """
    settings_dict = connection.settings_dict
    with create_member(role) as login:
        url = build_url(login)
        _disconnect()
        try:
            with monkeypatch.context() as patch:
                patch.setattr(settings, "ANNALS", replace(settings.ANNALS, database_url=url))
                patch.setitem(settings_dict, "USER", login)
                patch.setitem(settings_dict, "PASSWORD", PASSWORD)
                yield login
        finally:
            _disconnect()


def _disconnect() -> None:
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]  # of psycopg's backend
