"""Who reads: for whom the documents of this request are. Nobody in particular reads masked."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Final, Protocol

from django.contrib.auth.models import Permission, User
from django.db.models import Q
from django.http import HttpRequest

from history import looks
from history.documents.exactjson import dumps
from history.entities import Entity

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


class _Reader:
    """The reader of one request. The permission is looked up at the first marked document."""

    def __init__(self, user: Caller | None, *, everything: bool = False) -> None:
        self._user = user
        self._clear: bool | None = True if everything else None

    @property
    def clear(self) -> bool:
        if self._clear is None:
            self._clear = holds(self._user, VIEW)
        return self._clear


_reader: ContextVar[_Reader | None] = ContextVar("history.masking.reader", default=None)


def reads_clear() -> bool:
    """Whether the present reader may see marked values; False outside every `read_by`."""
    reader = _reader.get()
    return reader is not None and reader.clear


@contextmanager
def read_by(user: Caller | None) -> Iterator[None]:
    """What is read inside is for this user: masked unless they have VIEW."""
    before = _reader.set(_Reader(user))
    try:
        yield
    finally:
        _reader.reset(before)


@contextmanager
def in_clear() -> Iterator[None]:
    """What is read inside is not masked. For one value that is unmasked, and for programs on the
    host that compare documents and show none."""
    before = _reader.set(_Reader(None, everything=True))
    try:
        yield
    finally:
        _reader.reset(before)


# By login and permission: until when it is remembered, and whether it is given.
_known: dict[tuple[object, str], tuple[float, bool]] = {}


def holds(user: Caller | None, permission: str) -> bool:
    """Whether the permission was given to this login, or to a group of it.

    To be a superuser is not enough: an administrator manages, and reads personal data only after
    giving the permission to a login, of which the admin keeps an entry. Remembered for
    REMEMBERED_SECONDS.
    """
    if user is None or not user.is_authenticated or not user.is_active:
        return False
    if not isinstance(user, User):
        return user.has_perm(permission)
    asked = (user.pk, permission)
    until, granted = _known.get(asked, (0.0, False))
    if until > time.monotonic():
        return granted
    app, _, codename = permission.partition(".")
    given = Permission.objects.filter(Q(user=user) | Q(group__user=user))
    granted = given.filter(content_type__app_label=app, codename=codename).exists()
    if len(_known) >= REMEMBERED:
        _known.clear()
    _known[asked] = (time.monotonic() + REMEMBERED_SECONDS, granted)
    return granted


def forget(**_: object) -> None:
    """Forget all remembered permissions. A signal receiver."""
    _known.clear()


log = logging.getLogger(__name__)


def record_unmasking(
    request: HttpRequest,
    entity: Entity,
    id: str,
    version: int,
    moment: datetime,
    path: str,
    reason: str,
) -> None:
    """Record that the user of a request is about to see one masked value. version, moment: the
    number of the version, and when it was made. path: RFC 6901 pointer into the snapshot. The
    journal writes its entry before the answer leaves."""
    looks.unmasked(path, moment, reason)
    # As JSON: a line break in the reason cannot begin a line of its own.
    user, whose, where, why = (
        dumps(each).decode()
        for each in (request.user.get_username(), f"{entity.name} {id}", path, reason)
    )
    text = "unmasked by %s: %s version %d path %s, reason %s"
    log.warning(text, user, whose, version, where, why)
