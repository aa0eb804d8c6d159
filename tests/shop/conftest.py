"""Fixtures for a test process that runs the example shop, and not Annals."""

import os
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

import psycopg
import pytest
from django.contrib import admin
from django.core.management import call_command
from django.db import connections
from django.test import Client
from pytest_django import DjangoDbBlocker

from tests.outbox import service_in_process

SHOP = Path(__file__).parents[2] / "examples" / "shop"
sys.path.append(str(SHOP))
ENVIRONMENT = {"SHOP_SECRET_KEY": "of the tests", "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
TABLES = "outbox_message, outbox_document, orders_order, orders_item, orders_product, auth_user"


@pytest.fixture(scope="module")
def installed(django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """The URL of the shop's database, with the tables of the shop."""
    with patch.dict(os.environ, ENVIRONMENT):
        settings = import_module("shop.settings")
    site = admin.AdminSite()
    with (
        django_db_blocker.unblock(),
        service_in_process.create_database("shop") as name,
        service_in_process.run_service(settings, name, site) as url,
    ):
        yield url


@pytest.fixture
def shop(installed: str) -> Iterator[str]:
    """The URL of the shop's database, with its demo data."""
    call_command("demo_data", verbosity=0)
    yield installed
    connections["default"].close()
    with psycopg.connect(installed, autocommit=True) as connection:
        connection.execute(f"TRUNCATE {TABLES} CASCADE")


@pytest.fixture
def anna(shop: str) -> Client:
    """A test client with the login `anna`."""
    client = Client(headers={"host": "localhost"})
    assert client.login(username="anna", password="anna")
    return client
