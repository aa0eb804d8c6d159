"""Shows characters of documents that HTML cannot contain, or that change how others are read."""

from __future__ import annotations

import re
from typing import Final

from django.http import HttpResponse, HttpResponseBase
from django.template.response import SimpleTemplateResponse

NUL: Final = "\N{SYMBOL FOR NULL}".encode()
# U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069 in UTF-8. What a form sends back stays.
_DIRECTIONS: Final = re.compile(
    rb"<input\b[^>]*>|\xd8\x9c|\xe2\x80[\x8e\x8f\xaa-\xae]|\xe2\x81[\xa6-\xa9]"
)


def visible(response: HttpResponseBase) -> HttpResponseBase:
    """The page with NUL as a sign of its own, and direction marks as escapes: with one of them a
    value reads as if it were another one."""
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
