"""Another Django service in the place of Annals, in this process: its settings, its apps and a
database of its own. Annals does not have the outbox installed."""

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
def database(prefix: str) -> Iterator[str]:
    """The name of a new database."""
    name = f"{prefix}_{secrets.token_hex(4)}"
    _on_server("CREATE DATABASE {}", name)
    try:
        yield name
    finally:
        _on_server("DROP DATABASE {} WITH (FORCE)", name)


@contextmanager
def service(settings: ModuleType, database: str, site: admin.AdminSite) -> Iterator[str]:
    """The service, migrated; the address of its database. site: its admin."""
    ours = connections["default"]
    url = make_conninfo(os.environ["DATABASE_URL"], dbname=database)
    given = {**connections.configure_settings(settings.DATABASES)["default"], "NAME": database}
    given.update(_address(url))
    kept = connections.settings["default"]
    changed = {**_defaults(), **_named(vars(settings))}
    del changed["DATABASES"]
    with _own_checks(), _own_admin(site), override_settings(**changed):
        del connections["default"]
        connections.settings["default"] = given
        _register(site)
        try:
            call_command("migrate", run_syncdb=True, verbosity=0)
            yield url
        finally:
            connection_created.disconnect(dispatch_uid="outbox.default")  # of outbox.database
            connections["default"].close()
            connections.settings["default"] = kept
            connections["default"] = ours


def _defaults() -> dict[str, Any]:
    """Django's values of the settings that Annals has."""
    return {
        name: value
        for name, value in _named(vars(global_settings)).items()
        if django_settings.is_overridden(name)
    }


def _named(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name.isupper()}


@contextmanager
def _own_checks() -> Iterator[None]:
    """Apps register their checks when they are loaded; another service may not have the app."""
    kept = set(registry.registered_checks)
    try:
        yield
    finally:
        registry.registered_checks = kept


@contextmanager
def _own_admin(site: admin.AdminSite) -> Iterator[None]:
    """Django's admin site is one for the process, and that of Annals is another one. Each module
    of screens registers once in a process, so those of Annals do it now, with its own site."""
    importlib.import_module("annals.urls")
    lazy: Any = admin.site
    kept, lazy._wrapped = lazy._wrapped, site
    try:
        yield
    finally:
        lazy._wrapped = kept


def _register(site: admin.AdminSite) -> None:
    """The pages of the outbox, which register once in a process: perhaps with another service's
    admin."""
    for app in filter(apps.is_installed, ("outbox", "outbox.inbox")):
        pages = sys.modules[f"{app}.admin"]
        if all(type(page).__module__ != pages.__name__ for page in site._registry.values()):
            importlib.reload(pages)


def _address(url: str) -> dict[str, Any]:
    from psycopg.conninfo import conninfo_to_dict

    parts = conninfo_to_dict(url)
    return {name.upper(): str(parts.get(name, "")) for name in ("user", "password", "host", "port")}


def _on_server(statement: str, name: str) -> None:
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(sql.SQL(statement).format(sql.Identifier(name)))
