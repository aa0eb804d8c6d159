"""Who may do what: four roles, and in demo mode a login for each.

`manage.py migrate` brings the groups to what stands here; permissions that somebody added to
them by hand go, so that this file can be relied on.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.db import transaction

log = logging.getLogger(__name__)

COMPLETENESS = "ingest.view_completeness"
READ = ("history.view_history", COMPLETENESS)
OPERATE = (
    COMPLETENESS,
    "ingest.view_ledger",
    "ingest.view_gap",
    "ingest.view_quarantined",
)

# A role is a group of this name. An administrator is a superuser besides.
ROLES: Mapping[str, tuple[str, ...]] = {
    "support": READ,
    "auditor": READ,
    "ops": OPERATE,
    "admin": (*READ, *OPERATE),
}
SUPERUSER = "admin"


def receive(using: str = "default", **_: Any) -> None:
    """A post_migrate receiver: groups always, logins in demo mode."""
    with transaction.atomic(using=using):
        make_groups()
        if settings.ANNALS.demo:
            make_logins()


def make_groups() -> None:
    """Bring the groups of the roles to exactly their permissions."""
    from django.contrib.auth.models import Group, Permission

    known = {
        f"{permission.content_type.app_label}.{permission.codename}": permission
        for permission in Permission.objects.select_related("content_type")
    }
    for name, wanted in ROLES.items():
        group, _ = Group.objects.get_or_create(name=name)
        # `migrate history` alone has not made ingest's permissions yet; the next one has.
        group.permissions.set(known[permission] for permission in wanted if permission in known)


def make_logins() -> None:
    """A login for each role, its name for a password. One that is there stays as it is."""
    from django.contrib.auth.models import Group, User

    present = set(User.objects.filter(username__in=ROLES).values_list("username", flat=True))
    for name in ROLES.keys() - present:
        user = User.objects.create_user(
            name, password=name, is_staff=True, is_superuser=name == SUPERUSER
        )
        user.groups.add(Group.objects.get(name=name))
        log.info("demo login made: %s", name)
