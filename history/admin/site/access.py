"""Who may open the history screens."""

import re
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Concatenate, Final, ParamSpec

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.template.response import SimpleTemplateResponse

from history import masking, timeline
from history.base import zone
from history.masking.reader import may
from history.need_to_know import NeedToKnowError, RuleFailedError
from history.requests import accesses, worker_shares
from history.timeline import Reader

PERMISSION = "history.view_history"
RETRY_SECONDS = 5
P = ParamSpec("P")
May = Callable[[Any], bool]


def holds(permission: str) -> May:
    """Whether a user has a permission. A superuser has every one."""
    return lambda user: may(user, permission)


def was_given(permission: str) -> May:
    """Whether a user has a permission from a role, or from an administrator; no superuser's."""
    return lambda user: masking.holds(user, permission)


def reader(request: HttpRequest) -> dict[str, Any]:
    """For every template. may_read: whether the login may open the history; asked where a page
    needs it."""
    return {
        "may_read": partial(may, getattr(request, "user", None), PERMISSION),
        "zone": zone.chosen(request),
        "zone_name": zone.CHOICES[zone.chosen(request)],
    }


def may_view_history(
    view: Callable[Concatenate[HttpRequest, Reader, P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """Open a view only to logins with PERMISSION; the site itself requires the log-in. Documents
    are masked as the login may see them, and an application that the login may not see is refused.
    The reader is the view's second argument."""

    @wraps(view)
    def checked(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        if not may(request.user, PERMISSION):
            raise PermissionDenied
        try:
            with worker_shares.of_login(request.user.pk):
                reader = timeline.of_request(request.user, accesses.of(request))
                return view(request, reader, *args, **kwargs)
        except (NeedToKnowError, RuleFailedError) as error:
            return _refused(request, error)

    return checked


def _refused(request: HttpRequest, error: NeedToKnowError | RuleFailedError) -> HttpResponse:
    failed = isinstance(error, RuleFailedError)
    context = {**admin.site.each_context(request), "failed": failed}
    status = 503 if failed else 403
    answer = render(request, "history/not_open.html", context, status=status)
    if failed:
        answer.headers["Retry-After"] = str(RETRY_SECONDS)
    return answer


NUL: Final = "\N{SYMBOL FOR NULL}".encode()
# U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069 in UTF-8. What a form sends back stays.
_DIRECTIONS: Final = re.compile(
    rb"<input\b[^>]*>|\xd8\x9c|\xe2\x80[\x8e\x8f\xaa-\xae]|\xe2\x81[\xa6-\xa9]"
)


def visible(response: HttpResponseBase) -> HttpResponseBase:
    """The page with NUL as a sign of its own, and direction marks as escapes."""
    if isinstance(response, SimpleTemplateResponse) and not response.is_rendered:
        response.add_post_render_callback(_shown)
    elif isinstance(response, HttpResponse):
        _shown(response)
    return response


def _shown(response: HttpResponse) -> None:
    if not response.headers.get("Content-Type", "").startswith("text/html"):
        return
    content = response.content
    if b"\0" in content:
        content = content.replace(b"\0", NUL)
    response.content = _DIRECTIONS.sub(_escaped, content)


def _escaped(found: re.Match[bytes]) -> bytes:
    text = found[0]
    return text if text.startswith(b"<") else text.decode().encode("unicode_escape")
