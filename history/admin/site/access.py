"""Who may open the history screens."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse

from history import masking

PERMISSION = "history.view_history"
P = ParamSpec("P")
May = Callable[[Any], bool]


def holds(permission: str) -> May:
    """Whether a user has a permission. A superuser has every one."""
    return lambda user: bool(user.has_perm(permission))


def was_given(permission: str) -> May:
    """Whether a user has a permission from a role, or from an administrator: to be a superuser is
    not enough."""
    return lambda user: masking.holds(user, permission)


def may_view_history(view: Callable[P, HttpResponse]) -> Callable[P, HttpResponse]:
    """Open a view only to logins with PERMISSION; the site itself requires the log-in. Documents
    are masked as the login may see them. The request is the view's first argument."""

    @wraps(view)
    def checked(*args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        request = args[0]
        if not isinstance(request, HttpRequest) or not request.user.has_perm(PERMISSION):
            raise PermissionDenied
        with masking.read_by(request.user):
            return view(*args, **kwargs)

    return checked
