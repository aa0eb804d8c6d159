"""Roles, their permissions, and the demo logins."""

from typing import Any

import pytest
from django.conf import global_settings
from django.contrib.auth.models import Group, Permission, User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from annals.access import roles
from history.policy.masking.viewer import has_explicit_permission, has_permission

pytestmark = pytest.mark.django_db

HISTORY, COMPLETENESS = "history.view_history", "ingest.view_completeness"


def test_migrate_resets_permissions_of_roles() -> None:
    group = Group.objects.get(name="support")
    group.permissions.set([Permission.objects.get(codename="add_user")])
    roles.create_groups()
    actual = {f"{p.content_type.app_label}.{p.codename}" for p in group.permissions.all()}
    assert actual == set(roles.ROLES["support"])


def test_permissions_of_roles_exist() -> None:
    for name, expected in roles.ROLES.items():
        assert Group.objects.get(name=name).permissions.count() == len(set(expected))


def test_demo_login_that_exists_already_is_not_changed() -> None:
    user = User.objects.get(username="ops")
    user.set_password("changed manually")
    user.save()
    roles.create_demo_logins()
    assert User.objects.get(username="ops").check_password("changed manually")


def test_production_deactivates_demo_logins_that_have_a_fast_password_hash(settings: Any) -> None:
    """A login is a demo login if the password of the login equals the name of the login."""
    settings.PASSWORD_HASHERS = ["annals.access.local_logins.DemoHasher"]
    user = User.objects.get(username="ops")
    user.set_password("ops")
    user.save()
    assert user.password.startswith("pbkdf2_sha256$1$")
    settings.PASSWORD_HASHERS = global_settings.PASSWORD_HASHERS
    roles.disable_demo_logins()
    assert not User.objects.get(username="ops").is_active


@pytest.mark.parametrize("requested", [has_permission, has_explicit_permission])
def test_permission_is_cached_until_it_changes(requested: Any) -> None:
    def check_permission() -> tuple[bool, bool]:
        """Return whether the login "ops" has the permission HISTORY.

        Also return whether the check ran SQL queries.
        """
        user = User.objects.get(username="ops")
        with CaptureQueriesContext(connection) as queries:
            actual = requested(user, HISTORY)
        return actual, len(queries) > 0

    user = User.objects.get(username="ops")
    assert [check_permission(), check_permission()] == [(False, True), (False, False)]
    user.groups.add(Group.objects.get(name="support"))
    assert [check_permission(), check_permission()] == [(True, True), (True, False)]
    User.objects.filter(pk=user.pk).update(is_active=False)  # as another process does it
    assert check_permission() == (False, False)
    User.objects.filter(pk=user.pk).update(is_active=True, is_superuser=True)
    user.groups.clear()
    assert check_permission() == (requested is has_permission, requested is has_explicit_permission)
