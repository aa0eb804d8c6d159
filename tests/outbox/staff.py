"""Who uses the pages of the admin, and a database that is read from a replica."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib.auth.models import Permission, User
from django.db import connections
from django.test import Client, override_settings


def admin() -> Client:
    """The browser of somebody who may do everything."""
    somebody, _ = User.objects.get_or_create(username="admin", is_staff=True, is_superuser=True)
    return _logged_in(somebody)


def viewer(permission: str) -> Client:
    """The browser of somebody who has this permission only."""
    somebody, _ = User.objects.get_or_create(username=permission, is_staff=True)
    somebody.user_permissions.add(Permission.objects.get(codename=permission))
    return _logged_in(somebody)


def act(page: str, action: str, chosen: list[str]) -> None:
    """Do something with the chosen rows of a list."""
    given = {"action": action, "_selected_action": chosen}
    assert admin().post(page, given, follow=True).status_code == 200


@contextmanager
def read_from_a_replica() -> Iterator[None]:
    """Reads go to another alias, where nothing can be written."""
    options = {"options": "-c default_transaction_read_only=on"}
    connections.settings["replica"] = {**connections.settings["default"], "OPTIONS": options}
    with override_settings(DATABASE_ROUTERS=["tests.outbox.staff.ReadsElsewhere"]):
        try:
            yield
        finally:
            connections["replica"].close()
            del connections["replica"]
            del connections.settings["replica"]


class ReadsElsewhere:
    """A router for it."""

    def db_for_read(self, *_: Any, **__: Any) -> str:
        return "replica"

    def db_for_write(self, *_: Any, **__: Any) -> str:
        return "default"


def _logged_in(somebody: User) -> Client:
    client = Client()
    client.force_login(somebody)
    return client
