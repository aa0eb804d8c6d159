"""The viewer: the login for which one request reads, and what it may see."""

import time
from dataclasses import dataclass, field
from typing import Final, Protocol

from django.contrib.auth.models import Permission, User
from django.db.models import Q

from history.policy.access_record import AccessRecord

VIEW: Final = "history.view_sensitive"
UNMASK: Final = "history.unmask"
REMEMBERED_SECONDS = 5.0
MAX_REMEMBERED = 1000


class Caller(Protocol):
    """The login of a person or a program, as an object with the methods of Django's user.

    The need-to-know rule gets it as the argument `user`.
    """

    @property
    def pk(self) -> object: ...
    @property
    def is_authenticated(self) -> bool: ...
    @property
    def is_active(self) -> bool: ...
    def has_perm(self, permission: str, /) -> bool: ...


@dataclass(slots=True)
class Viewer:
    """The login on whose behalf a request reads, with what this login may see."""

    # None: a command on this host, which reads the documents of every application, masked
    user: Caller | None
    # collects what the request reads, for the access journal
    access: AccessRecord = field(default_factory=AccessRecord)
    in_clear: bool = False  # whether marked values are shown without a check of the permission
    # the need-to-know rule's decision for each application so far; None if the rule failed
    decided: dict[str, bool | None] = field(default_factory=dict)

    @property
    def sees_marked(self) -> bool:
        """Whether the viewer may see marked values.

        Call it only for documents with marked fields: it may ask the database.
        """
        return self.in_clear or has_explicit_permission(self.user, VIEW)


# The permissions that this process remembers, because a page checks the same ones many times.
# Key: login, permission, and whether it must be granted explicitly. Value: the time.monotonic() at
# which the entry expires, and the answer. forget_permissions() clears it.
_remembered_answers: dict[tuple[object, str, bool], tuple[float, bool]] = {}


def has_permission(user: Caller | None, permission: str) -> bool:
    """Return whether the user is logged in and has the permission. A superuser has every one."""
    return _is_granted(user, permission, is_explicit=False)


def has_explicit_permission(user: Caller | None, permission: str) -> bool:
    """Return whether the permission was granted to this login or to one of its groups.

    To be a superuser is not enough.
    """
    return _is_granted(user, permission, is_explicit=True)


def _is_granted(user: Caller | None, permission: str, is_explicit: bool) -> bool:
    """Return whether the user has the permission.

    The answer for a row of auth_user is remembered for REMEMBERED_SECONDS, or until this process
    changes a permission.

    Args:
        is_explicit: Do not count the permissions that every superuser has.
    """
    if user is None or not user.is_authenticated or not user.is_active:
        return False
    if not isinstance(user, User):
        return user.has_perm(permission)
    key = (user.pk, permission, is_explicit)
    until, granted = _remembered_answers.get(key, (0.0, False))
    if until > time.monotonic():
        return granted
    granted = _is_granted_explicitly(user, permission) if is_explicit else user.has_perm(permission)
    if len(_remembered_answers) >= MAX_REMEMBERED:
        _remembered_answers.clear()
    _remembered_answers[key] = (time.monotonic() + REMEMBERED_SECONDS, granted)
    return granted


def _is_granted_explicitly(user: User, permission: str) -> bool:
    app, _, codename = permission.partition(".")
    permissions = Permission.objects.filter(Q(user=user) | Q(group__user=user))
    return permissions.filter(content_type__app_label=app, codename=codename).exists()


def forget_permissions(**_: object) -> None:
    """Forget all remembered permissions. A signal receiver."""
    _remembered_answers.clear()
