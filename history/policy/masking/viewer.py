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
    """A login, or a program with its own token."""

    @property
    def pk(self) -> object: ...
    @property
    def is_authenticated(self) -> bool: ...
    @property
    def is_active(self) -> bool: ...
    def has_perm(self, permission: str, /) -> bool: ...


@dataclass(slots=True)
class Viewer:
    """The login for which one request reads, with what it may see."""

    # None: a program on the host, which reads masked documents of every application
    user: Caller | None
    # what the request reads, for the access journal
    access: AccessRecord = field(default_factory=AccessRecord)
    in_clear: bool = False  # marked values are shown, whoever it is
    # by application, what the rule of need-to-know said; None if it failed
    decided: dict[str, bool | None] = field(default_factory=dict)

    @property
    def sees_marked(self) -> bool:
        """Whether the viewer may see marked values. Asked only for documents with marks."""
        return self.in_clear or has_explicit_permission(self.user, VIEW)


# What this process remembers of permissions, because a page asks for the same ones many times. By
# login, permission and whether it must be given: until when it is remembered, and the answer.
# forget_permissions clears it, also in tests.
_remembered_answers: dict[tuple[object, str, bool], tuple[float, bool]] = {}


def has_permission(user: Caller | None, permission: str) -> bool:
    """Return whether the user is logged in and has the permission. A superuser has every one."""
    return _ask_remembered(user, permission, is_explicit=False)


def has_explicit_permission(user: Caller | None, permission: str) -> bool:
    """Return whether the permission was granted to this login or a group of it.

    To be a superuser is not enough.
    """
    return _ask_remembered(user, permission, is_explicit=True)


def _ask_remembered(user: Caller | None, permission: str, is_explicit: bool) -> bool:
    """Return the answer, remembered for REMEMBERED_SECONDS or until this process changes a
    permission.
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
