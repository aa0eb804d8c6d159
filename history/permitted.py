"""Permissions of logins, remembered for a few seconds: a look-up costs two queries."""

from __future__ import annotations

import time

from history.masking.reader import Caller

PERMITTED_SECONDS = 5.0
REMEMBERED = 1000

_until: dict[tuple[object, str], float] = {}


def may(user: Caller | None, permission: str) -> bool:
    """Whether the user is logged in and has the permission.

    A granted permission is remembered for PERMITTED_SECONDS. The process that takes it away
    forgets it at once; so does every process for a login that is switched off.
    """
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
