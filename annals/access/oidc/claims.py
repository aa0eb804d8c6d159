"""Makes a login of Annals from a person's claims: name, roles, and a row of the people table.

The provider decides: a role that is gone from the claims is gone here at the next login, and so is
every permission that somebody gave to the login manually. No claim makes a superuser: the web's
database login cannot.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from django.contrib.auth.models import Group, User
from django.db import transaction

from annals.access.models import Identity, identity_of
from annals.access.oidc.providers import Provider, claim
from history.people import remember

log = logging.getLogger(__name__)

LONGEST_LOGIN: Final = 100


class NoRoleError(Exception):
    """The person is known to the provider, and has no role here."""


def roles_of(provider: Provider, claims: Mapping[str, Any]) -> frozenset[str]:
    """The roles that the groups of these claims give."""
    given = claim(claims, provider.groups_claim)
    groups = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    return frozenset(provider.roles[each] for each in groups if _known(provider, each))


def user_of(provider: Provider, claims: Mapping[str, Any]) -> User:
    """The login of the person that these verified claims are about, made or brought up to date.

    Raises NoRoleError, and then a login that was there has no role any more.
    """
    user = _brought_up_to_date(provider, claims)
    if user is None or not user.is_staff:
        raise NoRoleError
    return user


@transaction.atomic
def _brought_up_to_date(provider: Provider, claims: Mapping[str, Any]) -> User | None:
    """The login; None if there is none and none may be made."""
    login = _text(claim(claims, provider.login_claim)) or _text(claims["sub"])
    name = _text(claim(claims, provider.name_claim))
    roles = roles_of(provider, claims)
    identity = (
        Identity.objects.select_related("user")
        .select_for_update(of=("self",))
        .filter(issuer=provider.issuer, subject=claims["sub"])
        .first()
    )
    if identity is None and not roles:
        return None
    if identity is not None and identity.user.is_superuser:
        # The web cannot take this away, and a person of a provider must not have it.
        log.error("login of %r refused: it is a superuser in auth_user", identity.login)
        return None
    user = User() if identity is None else identity.user
    user.username = _free(f"{login}@{provider.name}", user)
    user.last_name, user.first_name = name[:150], ""
    user.is_staff = bool(roles)
    if identity is None:
        user.set_unusable_password()
        user.save()
    else:
        user.save(update_fields=["username", "last_name", "first_name", "is_staff"])
    user.groups.set(Group.objects.filter(name__in=roles))
    user.user_permissions.clear()
    if identity is None:
        identity = Identity.objects.create(
            issuer=provider.issuer, subject=claims["sub"], user=user, login=user.username
        )
    elif identity.login != user.username:
        log.warning("login %r is called %r from now on", identity.login, user.username)
        identity.login = user.username
        identity.save(update_fields=["login"])
    if name and _is_first(identity, login):
        remember(login, name, identity_of(user.pk))
    return user


def _is_first(identity: Identity, login: str) -> bool:
    """Whether nobody had this login before, here or at another provider. The people table has one
    name for a login, and the timelines show it: it stays the name of the one who had it first."""
    earlier = Identity.objects.filter(pk__lt=identity.pk, login__startswith=f"{login}@")
    return not any(
        each.rpartition("@")[0] == login for each in earlier.values_list("login", flat=True)
    )


def _known(provider: Provider, group: object) -> bool:
    return isinstance(group, str) and group in provider.roles


def _text(value: object) -> str:
    """A claim as one line of text; empty where it is not text."""
    if not isinstance(value, str):
        return ""
    return " ".join("".join(c if c.isprintable() else " " for c in value).split())[:LONGEST_LOGIN]


def _free(name: str, own: User) -> str:
    """The name; with a number if another login has it."""
    number, found = 1, name
    while User.objects.filter(username=found).exclude(pk=own.pk or 0).exists():
        number += 1
        found = f"{name}-{number}"
    return found
