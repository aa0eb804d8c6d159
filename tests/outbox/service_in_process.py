"""Runs a Django service with an outbox in this process, instead of Annals.

The service has other settings, apps and database than Annals. Annals does not install the outbox.
"""

import importlib
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import psycopg
from django.apps import apps
from django.conf import global_settings
from django.conf import settings as django_settings
from django.contrib import admin
from django.core.checks.registry import registry
from django.core.management import call_command
from django.db import connections
from django.db.backends.signals import connection_created
from django.test import override_settings
from psycopg import sql
from psycopg.conninfo import make_conninfo


@contextmanager
def create_database(prefix: str) -> Iterator[str]:
    """Create a database with a random name, yield the name, and drop the database."""
    name = f"{prefix}_{secrets.token_hex(4)}"
    _execute_on_server("CREATE DATABASE {}", name)
    try:
        yield name
    finally:
        _execute_on_server("DROP DATABASE {} WITH (FORCE)", name)


@contextmanager
def run_service(settings: ModuleType, database: str, site: admin.AdminSite) -> Iterator[str]:
    """Run a service in this process, migrate its database, and yield the URL of the database.

    Args:
        settings: The module with the settings of the service.
        database: The name of the service's database.
        site: The admin site of the service.
    """
    own_connection = connections["default"]
    url = make_conninfo(os.environ["DATABASE_URL"], dbname=database)
    database_settings = {
        **connections.configure_settings(settings.DATABASES)["default"],
        "NAME": database,
    }
    database_settings.update(_parse_address(url))
    earlier_settings = connections.settings["default"]
    changed_settings = {**_list_defaults(), **_select_settings(vars(settings))}
    # Secure password hashes, which are slow on purpose, would take most of the time.
    changed_settings["PASSWORD_HASHERS"] = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    del changed_settings["DATABASES"]
    with _restore_system_checks(), _use_admin_site(site), override_settings(**changed_settings):
        del connections["default"]
        connections.settings["default"] = database_settings
        _register_pages(site)
        try:
            call_command("migrate", run_syncdb=True, verbosity=0)
            yield url
        finally:
            # outbox.database.sessions has connected this handler.
            connection_created.disconnect(dispatch_uid="outbox.default")
            connections["default"].close()
            connections.settings["default"] = earlier_settings
            connections["default"] = own_connection


def _list_defaults() -> dict[str, Any]:
    """Return Django's defaults of the settings that Annals changes."""
    return {
        name: value
        for name, value in _select_settings(vars(global_settings)).items()
        if django_settings.is_overridden(name)
    }


def _select_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name.isupper()}


@contextmanager
def _restore_system_checks() -> Iterator[None]:
    """After the `with` block, remove the system checks that were registered in the block.

    Apps of the service register system checks when Django loads these apps.
    """
    checks = set(registry.registered_checks)
    try:
        yield
    finally:
        registry.registered_checks = checks


@contextmanager
def _use_admin_site(site: admin.AdminSite) -> Iterator[None]:
    """Use `site` as Django's default admin site in the `with` block.

    The admin pages of Annals register at the default site when `annals.urls` is first imported. So
    this function imports `annals.urls` first: otherwise, these pages could register at `site`.
    """
    importlib.import_module("annals.urls")
    lazy: Any = admin.site
    earlier_site, lazy._wrapped = lazy._wrapped, site
    try:
        yield
    finally:
        lazy._wrapped = earlier_site


def _register_pages(site: admin.AdminSite) -> None:
    """Register the admin pages of outbox and inbox at `site`.

    The modules with these pages run only once in a process. If an earlier service of this process
    has imported these modules, the pages are missing at `site`, and the modules are reloaded.
    """
    for app in filter(apps.is_installed, ("outbox", "outbox.inbox")):
        pages = sys.modules[f"{app}.admin"]
        if all(type(page).__module__ != pages.__name__ for page in site._registry.values()):
            importlib.reload(pages)


def _parse_address(url: str) -> dict[str, Any]:
    from psycopg.conninfo import conninfo_to_dict

    parts = conninfo_to_dict(url)
    return {name.upper(): str(parts.get(name, "")) for name in ("user", "password", "host", "port")}


def _execute_on_server(statement: str, name: str) -> None:
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(sql.SQL(statement).format(sql.Identifier(name)))
