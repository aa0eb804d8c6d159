"""Who reads: for whom the documents of a request are."""

import time
from dataclasses import dataclass, field
from typing import Final, Protocol

from django.contrib.auth.models import Permission, User
from django.db.models import Q

from history.requests.accesses import Look

VIEW: Final = "history.view_sensitive"
UNMASK: Final = "history.unmask"
REMEMBERED_SECONDS = 5.0
REMEMBERED = 1000


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
    """For whom one request reads; user None: a program on the host, which gets masked documents of
    every application. look: what it reads. in_clear: marked values too, whoever it is. For
    need-to-know: decided has what the rule said of each application, None where it failed."""

    user: Caller | None
    look: Look = field(default_factory=Look)
    in_clear: bool = False
    decided: dict[str, bool | None] = field(default_factory=dict)

    @property
    def clear(self) -> bool:
        """Whether the reader may see marked values. Asked where a document has marks."""
        return self.in_clear or holds(self.user, VIEW)


# By login, permission and whether it must be given: until when it is remembered, and the answer.
_known: dict[tuple[object, str, bool], tuple[float, bool]] = {}


def may(user: Caller | None, permission: str) -> bool:
    """Whether the user is logged in and has the permission. A superuser has every one."""
    return _remembered(user, permission, given=False)


def holds(user: Caller | None, permission: str) -> bool:
    """Whether the permission was given to this login, or to a group of it: to be a superuser is not
    enough."""
    return _remembered(user, permission, given=True)


def _remembered(user: Caller | None, permission: str, given: bool) -> bool:
    """The answer, for REMEMBERED_SECONDS or until this process changes a permission."""
    if user is None or not user.is_authenticated or not user.is_active:
        return False
    if not isinstance(user, User):
        return user.has_perm(permission)
    asked = (user.pk, permission, given)
    until, granted = _known.get(asked, (0.0, False))
    if until > time.monotonic():
        return granted
    granted = _given(user, permission) if given else user.has_perm(permission)
    if len(_known) >= REMEMBERED:
        _known.clear()
    _known[asked] = (time.monotonic() + REMEMBERED_SECONDS, granted)
    return granted


def _given(user: User, permission: str) -> bool:
    app, _, codename = permission.partition(".")
    given = Permission.objects.filter(Q(user=user) | Q(group__user=user))
    return given.filter(content_type__app_label=app, codename=codename).exists()


def forget(**_: object) -> None:
    """Forget all remembered permissions. A signal receiver."""
    _known.clear()
