"""Who may do what, by role."""

from typing import Any

import pytest
from django.conf import global_settings
from django.contrib.auth.models import Group, Permission, User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from annals.access import roles
from history.masking.viewer import holds, may

pytestmark = pytest.mark.django_db

HISTORY, COMPLETENESS = "history.view_history", "ingest.view_completeness"


def test_a_permission_given_manually_goes_and_one_taken_comes_back() -> None:
    group = Group.objects.get(name="support")
    group.permissions.set([Permission.objects.get(codename="add_user")])
    roles.create_groups()
    found = {f"{p.content_type.app_label}.{p.codename}" for p in group.permissions.all()}
    assert found == set(roles.ROLES["support"])


def test_every_permission_of_a_role_exists() -> None:
    for name, wanted in roles.ROLES.items():
        assert Group.objects.get(name=name).permissions.count() == len(set(wanted))


def test_a_login_that_is_there_stays_as_it_is() -> None:
    user = User.objects.get(username="ops")
    user.set_password("changed manually")
    user.save()
    roles.create_demo_logins()
    assert User.objects.get(username="ops").check_password("changed manually")


def test_production_knows_the_fast_hash_of_a_demo(settings: Any) -> None:
    """It switches off the logins whose password is their name."""
    settings.PASSWORD_HASHERS = ["annals.access.local_logins.DemoHasher"]
    user = User.objects.get(username="ops")
    user.set_password("ops")
    user.save()
    assert user.password.startswith("pbkdf2_sha256$1$")
    settings.PASSWORD_HASHERS = global_settings.PASSWORD_HASHERS
    roles.disable_demo_logins()
    assert not User.objects.get(username="ops").is_active


@pytest.mark.parametrize("asked", [may, holds])
def test_a_permission_is_remembered_until_it_changes(asked: Any) -> None:
    def answer() -> tuple[bool, bool]:
        """For a login that was just loaded; and whether the database was asked for more."""
        user = User.objects.get(username="ops")
        with CaptureQueriesContext(connection) as queries:
            found = asked(user, HISTORY)
        return found, len(queries) > 0

    user = User.objects.get(username="ops")
    assert [answer(), answer()] == [(False, True), (False, False)]
    user.groups.add(Group.objects.get(name="support"))
    assert [answer(), answer()] == [(True, True), (True, False)]
    User.objects.filter(pk=user.pk).update(is_active=False)  # by another process
    assert answer() == (False, False)
    User.objects.filter(pk=user.pk).update(is_active=True, is_superuser=True)
    user.groups.clear()
    assert answer() == (asked is may, asked is holds)
