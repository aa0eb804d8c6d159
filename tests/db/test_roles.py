"""Who may do what, by role."""

import pytest
from django.contrib.auth.models import Group, Permission, User

from annals.access import roles

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
