"""The login behind an id, as django.contrib.auth has it: loaded anew with every request, so that
one that is switched off counts at once. And its permissions, remembered for a few seconds."""

import time
from functools import cache

from django.contrib.auth.models import User
from psycopg.types.numeric import Int4

from history.database import prepared
from history.masking.reader import Caller


@cache
def _statement() -> str:
    columns = ", ".join(f'"{each.column}"' for each in User._meta.concrete_fields)
    return f"SELECT {columns} FROM auth_user WHERE id = %s"  # noqa: S608


@cache
def _names() -> list[str]:
    return [each.attname for each in User._meta.concrete_fields]


def login(id: int) -> User | None:
    """The user with this id, active or not; None if there is none."""
    for row in prepared.fetch(_statement(), [Int4(id)]):
        return User.from_db("default", _names(), row)
    return None


PERMITTED_SECONDS = 5.0
REMEMBERED = 1000

_until: dict[tuple[object, str], float] = {}


def may(user: Caller | None, permission: str) -> bool:
    """Whether the user is logged in and has the permission. A granted one is remembered for
    PERMITTED_SECONDS, or until this process takes it away."""
    if user is None or not user.is_authenticated:
        return False
    asked = (user.pk, permission)
    if user.is_active and _until.get(asked, 0.0) > time.monotonic():
        return True
    granted = user.has_perm(permission)
    if granted:
        if len(_until) >= REMEMBERED:
            _until.clear()
        _until[asked] = time.monotonic() + PERMITTED_SECONDS
    return granted


def forget(**_: object) -> None:
    """Forget all permissions. A signal receiver."""
    _until.clear()
