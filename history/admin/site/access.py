"""Who may open the history screens."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.template.response import SimpleTemplateResponse

from history.common import zone
from history.policy import masking
from history.policy.masking.viewer import has_permission

PERMISSION = "history.view_history"
PermissionCheck = Callable[[Any], bool]


def make_permission_check(permission: str) -> PermissionCheck:
    """Return a function that checks a user's permission. Superusers have every permission."""
    return lambda user: has_permission(user, permission)


def make_explicit_permission_check(permission: str) -> PermissionCheck:
    """Return a function that checks whether a permission was granted to a user explicitly.

    A role or an administrator grants it. Being a superuser is not enough.
    """
    return lambda user: masking.has_explicit_permission(user, permission)


def add_access_and_zone(request: HttpRequest) -> dict[str, Any]:
    """Return the variables that this context processor adds to every template.

    `may_read` is a callable: the login's permission to open the history is checked only if the
    template calls it. `zone` is the key of zone.CHOICES that the viewer chose, for example "mine".
    `zone_name` is the name of the time zone in which times are shown, such as "Europe/Moscow".
    """
    return {
        "may_read": partial(has_permission, getattr(request, "user", None), PERMISSION),
        "zone": zone.get_choice(request),
        "zone_name": zone.find_zone(request).key,
    }


NUL: Final = "\N{SYMBOL FOR NULL}".encode()
# The direction marks U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069 in UTF-8. Also
# matches whole <input> elements, to leave their values unchanged: a form sends them back.
_DIRECTIONS: Final = re.compile(
    rb"<input\b[^>]*>|\xd8\x9c|\xe2\x80[\x8e\x8f\xaa-\xae]|\xe2\x81[\xa6-\xa9]"
)


def show_invisible_characters(response: HttpResponseBase) -> HttpResponseBase:
    """Make NUL and direction marks visible in a page: NUL as a sign, the marks as escapes."""
    if isinstance(response, SimpleTemplateResponse) and not response.is_rendered:
        response.add_post_render_callback(_replace_invisible)
    elif isinstance(response, HttpResponse):
        _replace_invisible(response)
    return response


def _replace_invisible(response: HttpResponse) -> None:
    if not response.headers.get("Content-Type", "").startswith("text/html"):
        return
    content = response.content
    if b"\0" in content:
        content = content.replace(b"\0", NUL)
    response.content = _DIRECTIONS.sub(_escape_direction_mark, content)


def _escape_direction_mark(match: re.Match[bytes]) -> bytes:
    text = match[0]
    return text if text.startswith(b"<") else text.decode().encode("unicode_escape")
