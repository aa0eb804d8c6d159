"""Fixtures that make this process use settings and tables of the test service, not of Annals."""

from collections.abc import Iterator

import psycopg
import pytest
from django.contrib import admin
from django.db import connections
from pytest_django import DjangoDbBlocker

from tests.kafka.fixtures import apache, apache_node, broker, embedded
from tests.outbox import service_in_process, settings

__all__ = ["apache", "apache_node", "broker", "embedded"]

WITH_SCHEMA = "public.photo, public.album"
SITE = admin.AdminSite()
TABLES = (
    "outbox_message, outbox_document, outbox_tally,"
    " shop_order, shop_item, shop_flag, shop_basket, shop_line, shop_note,"
    " inbox_message, inbox_tally, shop_effect"
)


@pytest.fixture(scope="session")
def database_name() -> Iterator[str]:
    """Create the database that all tests of the outbox share, and yield the database's name."""
    with service_in_process.create_database("outbox") as name:
        yield name


@pytest.fixture(scope="module")
def installed(database_name: str, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """Run the test service in this process, create its tables, and yield its database URL."""
    with (
        django_db_blocker.unblock(),
        service_in_process.run_service(settings, database_name, SITE) as url,
    ):
        yield url
        # The next module migrates again. Django does not notice that tables exist whose names
        # contain a schema, and would create them twice.
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"DROP TABLE {WITH_SCHEMA}")


@pytest.fixture
def service(installed: str) -> Iterator[str]:
    """The URL of the service's database, with empty tables."""
    yield installed
    connections["default"].close()
    with psycopg.connect(installed, autocommit=True) as connection:
        connection.execute(f"TRUNCATE {TABLES}")
        connection.execute("DELETE FROM outbox_relay")
        connection.execute("DELETE FROM inbox_done")
