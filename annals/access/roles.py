"""The roles and their permissions; in demo mode, a login for each. `annals migrate` sets the groups
to this module's permissions: those that somebody added manually are removed."""

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
# The people and labels of the screens; who may log in, and who gets a permission for itself.
ADMINISTER = (
    *(
        f"history.{action}_{model}"
        for model in ("person", "fieldlabel")
        for action in ("view", "add", "change", "delete")
    ),
    "auth.view_user",
    "auth.change_user",
)

# Marked fields are masked for everybody else, an administrator included: see history.masking.
SENSITIVE = "history.view_sensitive"
UNMASK = "history.unmask"

# Each role is a Django group of the same name. None is a superuser: only the break-glass login is.
ROLES: Mapping[str, tuple[str, ...]] = {
    "support": READ,
    "auditor": READ,
    "ops": OPERATE,
    # Decides on loans, and needs the documents whole.
    "underwriter": (*READ, SENSITIVE),
    # Sees one value at a time, with a reason; reads who looked at what.
    "privacy": (*READ, UNMASK, JOURNAL),
    "admin": (*READ, *OPERATE, *ADMINISTER),
}


def receive(using: str = "default", **_: Any) -> None:
    """Receiver of post_migrate: creates the groups and, in demo mode, the logins."""
    with transaction.atomic(using=using):
        create_groups()
        if settings.ANNALS.demo:
            create_demo_logins()
        else:
            disable_demo_logins()


def create_groups() -> None:
    """Create the groups of the roles and set their permissions to exactly those of ROLES."""
    from django.contrib.auth.models import Group, Permission

    known = {
        f"{permission.content_type.app_label}.{permission.codename}": permission
        for permission in Permission.objects.select_related("content_type")
    }
    for name, wanted in ROLES.items():
        group, _ = Group.objects.get_or_create(name=name)
        # After `migrate history` alone, the permissions of ingest come with the next migrate.
        group.permissions.set(known[permission] for permission in wanted if permission in known)


def disable_demo_logins() -> None:
    """Switch off every login whose password is its own name: a demo left it behind."""
    from django.contrib.auth.models import User

    for user in User.objects.filter(is_active=True):
        if user.has_usable_password() and user.check_password(user.get_username()):
            user.is_active = False
            user.set_unusable_password()  # which ends its sessions too
            user.save()
            log.warning("login %s switched off: its password was its name", user.get_username())


def create_demo_logins() -> None:
    """Create a login for each role, with the role's name as password. Existing logins stay."""
    from django.contrib.auth.models import Group, User

    present = User.objects.filter(username__in=ROLES).values_list("username", flat=True)
    for name in ROLES.keys() - {*present}:
        user = User.objects.create_user(name, password=name, is_staff=True)
        user.groups.add(Group.objects.get(name=name))
        log.info("demo login created: %s", name)


@dataclass(frozen=True, slots=True)
class Service:
    """A program that calls with a Bearer token, as the rest of Annals sees a user. It may read,
    and nothing else. subject: `sub` of its token. sensitive: sensitive fields too."""

    issuer: str
    client: str
    subject: str
    sensitive: bool = False
    is_authenticated: bool = True
    is_active: bool = True
    is_anonymous: bool = False

    @property
    def pk(self) -> str:
        return f"{self.issuer}#{self.client}"

    def get_username(self) -> str:
        """The client id."""
        return self.client

    def has_perm(self, permission: str, _: object = None) -> bool:
        """Whether the scopes give this permission: they give those of reading."""
        return permission in READ or (self.sensitive and permission == SENSITIVE)
