"""The service of the tests takes the place of Annals: its settings, its apps and a database of its
own. Annals does not have the app installed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.contrib import admin
from django.core.management import call_command
from django.db import connections
from django.test import override_settings
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pytest_django import DjangoDbBlocker

from tests.kafka.fixtures import apache, apache_node, broker, embedded
from tests.outbox import settings

__all__ = ["apache", "apache_node", "broker", "embedded"]

SETTINGS = {
    name: value for name, value in vars(settings).items() if name.isupper() and name != "DATABASES"
}
SITE = admin.AdminSite()
TABLES = "outbox_message, outbox_document, outbox_tally, shop_order, shop_item, shop_flag"


@pytest.fixture(scope="module")
def database_name() -> Iterator[str]:
    """A database for the tests of a module."""
    name = f"outbox_{secrets.token_hex(4)}"
    _on_server("CREATE DATABASE {}", name)
    yield name
    _on_server("DROP DATABASE {} WITH (FORCE)", name)


@pytest.fixture(scope="module")
def installed(database_name: str, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """The service, migrated; the address of its database."""
    ours = connections["default"]
    url = make_conninfo(os.environ["DATABASE_URL"], dbname=database_name)
    given = {**connections.configure_settings(settings.DATABASES)["default"], "NAME": database_name}
    given.update(_address(url))
    kept = connections.settings["default"]
    with own_admin(), override_settings(**SETTINGS), django_db_blocker.unblock():
        del connections["default"]
        connections.settings["default"] = given
        try:
            call_command("migrate", run_syncdb=True, verbosity=0)
            yield url
        finally:
            connections["default"].close()
            connections.settings["default"] = kept
            connections["default"] = ours


@pytest.fixture
def service(installed: str) -> Iterator[str]:
    """The service with empty tables; the address of its database."""
    yield installed
    connections["default"].close()
    with psycopg.connect(installed, autocommit=True) as connection:
        connection.execute(f"TRUNCATE {TABLES}")
        connection.execute("DELETE FROM outbox_relay")


@contextmanager
def own_admin() -> Iterator[None]:
    """Django's admin site is one for the process, and that of Annals is another one."""
    lazy: Any = admin.site
    kept, lazy._wrapped = lazy._wrapped, SITE
    try:
        yield
    finally:
        lazy._wrapped = kept


def _address(url: str) -> dict[str, Any]:
    from psycopg.conninfo import conninfo_to_dict

    parts = conninfo_to_dict(url)
    return {name.upper(): str(parts.get(name, "")) for name in ("user", "password", "host", "port")}


def _on_server(statement: str, name: str) -> None:
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(sql.SQL(statement).format(sql.Identifier(name)))
