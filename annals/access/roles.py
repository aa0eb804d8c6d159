"""The roles and their permissions, and a login for each role in the demo.

`annals migrate` sets the permissions of the groups to those of this module. Permissions that were
added manually are removed.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
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
    "ingest.ask_quarantine",
)
JOURNAL = "access.view_journal"
# The names of people, the labels of fields, and logins.
ADMINISTER = (
    *(
        f"history.{action}_{model}"
        for model in ("person", "fieldlabel")
        for action in ("view", "add", "change", "delete")
    ),
    "auth.view_user",
    "auth.change_user",
)

# Without this permission, all logins see marked fields masked, also administrators. See
# history.policy.masking.
SENSITIVE = "history.view_sensitive"
UNMASK = "history.unmask"

# Each role is a Django group of the same name. No role makes a login a superuser: only the
# break-glass login is one.
ROLES: Mapping[str, tuple[str, ...]] = {
    "support": READ,
    "auditor": READ,
    "ops": OPERATE,
    # Decides on loans and needs unmasked documents.
    "underwriter": (*READ, SENSITIVE),
    # Unmasks one value at a time, for a reason, and reads the access journal.
    "privacy": (*READ, UNMASK, JOURNAL),
    "admin": (*READ, *OPERATE, *ADMINISTER),
}


def create_groups_and_logins(using: str = "default", **_: Any) -> None:
    """Create the groups and, in a demo, the logins. A receiver of post_migrate."""
    with transaction.atomic(using=using):
        create_groups()
        if settings.ANNALS.demo:
            create_demo_logins()
        else:
            disable_demo_logins()


def create_groups() -> None:
    """Create the groups of the roles and set their permissions to exactly ROLES."""
    from django.contrib.auth.models import Group, Permission

    permissions = {
        f"{permission.content_type.app_label}.{permission.codename}": permission
        for permission in Permission.objects.select_related("content_type")
    }
    for name, role_permissions in ROLES.items():
        group, _ = Group.objects.get_or_create(name=name)
        # After `migrate history` alone, permissions of ingest are missing until the next migrate.
        group.permissions.set(
            permissions[permission] for permission in role_permissions if permission in permissions
        )


def disable_demo_logins() -> None:
    """Switch off the logins that a demo left behind, because their password is their name."""
    from django.contrib.auth.models import User

    for user in User.objects.filter(is_active=True):
        if user.has_usable_password() and user.check_password(user.get_username()):
            user.is_active = False
            user.set_unusable_password()  # which ends its sessions too
            user.save()
            log.warning("login %s switched off: its password was its name", user.get_username())


def create_demo_logins() -> None:
    """Create the missing logins of the demo: one for each role, with the name as password."""
    from django.contrib.auth.models import Group, User

    present = User.objects.filter(username__in=ROLES).values_list("username", flat=True)
    for name in ROLES.keys() - {*present}:
        user = User.objects.create_user(name, password=name, is_staff=True)
        user.groups.add(Group.objects.get(name=name))
        log.info("demo login created: %s", name)


@dataclass(frozen=True, slots=True)
class ProgramUser:
    """A program with a Bearer token, in the place of Django's user. It may only read."""

    issuer: str
    client: str
    subject: str  # the claim `sub` of the token
    sensitive: bool = False  # whether the program may read sensitive fields
    is_authenticated: bool = True
    is_active: bool = True
    is_anonymous: bool = False

    @property
    def pk(self) -> str:
        return f"{self.issuer}#{self.client}"

    def get_username(self) -> str:
        """Return the client id."""
        return self.client

    def has_perm(self, permission: str, _: object = None) -> bool:
        """Return whether the scopes of the program's token give it a permission.

        Only permissions to read can be given by a scope.
        """
        return permission in READ or (self.sensitive and permission == SENSITIVE)
