"""Answers that a client may keep, if it asks each time whether they are still right."""

import hashlib
from typing import Final

from django.http import HttpResponse, HttpResponseNotModified
from django.utils.http import parse_etags
from rest_framework.request import Request

# Only the client itself may keep the answer, and it asks again before each use.
REVALIDATED: Final = "private, no-cache"
_KEPT_HEADERS: Final = ("Cache-Control", "Content-Language", "ETag", "Vary")


def revalidated(request: Request, answer: HttpResponse) -> HttpResponse:
    """Return the answer with its ETag, or 304 without it if the client has the same one.

    The ETag is a digest of the whole answer, which was made for this login, its masks and its
    language. So it changes with everything that changes what this login sees.
    """
    answer.headers["Cache-Control"] = REVALIDATED
    # Weak: compressed and as it is, it is the same answer.
    digest = f'"{hashlib.sha256(answer.content).hexdigest()[:32]}"'
    answer.headers["ETag"] = f"W/{digest}"
    known = parse_etags(request.headers.get("If-None-Match", ""))
    if "*" not in known and digest not in (etag.removeprefix("W/") for etag in known):
        return answer
    return HttpResponseNotModified(
        headers={name: answer.headers[name] for name in _KEPT_HEADERS if name in answer.headers}
    )
