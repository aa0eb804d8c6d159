"""Who may open the history screens."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.template.response import SimpleTemplateResponse

from history import masking
from history.base import zone
from history.masking.viewer import may

PERMISSION = "history.view_history"
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
        "zone_name": zone.of(request).key,
    }


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
