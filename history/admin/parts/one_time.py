"""Forms that can be sent once: the session has a token for each form that was shown."""

from __future__ import annotations

import secrets
from typing import Final

from django.http import HttpRequest

FIELD: Final = "once"
KEY: Final = "one_time_forms"
MOST: Final = 20  # forms that one login has open; older ones have to be opened again


def issue(request: HttpRequest) -> str:
    """The token for a form that is shown now."""
    token = secrets.token_urlsafe(12)
    request.session[KEY] = [*request.session.get(KEY, []), token][-MOST:]
    return token


def unused(request: HttpRequest) -> bool:
    """Whether the form that was sent has not been used yet."""
    return request.POST.get(FIELD) in request.session.get(KEY, [])


def use(request: HttpRequest) -> None:
    """The form that was sent is used now: a reload of its answer does not send it again."""
    left = request.session.get(KEY, [])
    request.session[KEY] = [each for each in left if each != request.POST.get(FIELD)]
