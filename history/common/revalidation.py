"""Lets a client keep an answer and ask before each use whether it changed."""

import hashlib
from typing import Final

from django.http import HttpResponse, HttpResponseNotModified
from django.utils.http import parse_etags
from rest_framework.request import Request

# Only the client itself may keep the answer, and it asks again before each use.
REVALIDATED: Final = "private, no-cache"
_KEPT_HEADERS: Final = ("Cache-Control", "Content-Language", "ETag", "Vary")


def revalidate(request: Request, answer: HttpResponse) -> HttpResponse:
    """Return the answer with an ETag, or 304 without a body if the client has the same answer.

    The ETag is a digest of the whole answer. The answer was made for this login, its masks and its
    language, so the ETag changes whenever this login would see something else.
    """
    answer.headers["Cache-Control"] = REVALIDATED
    # A weak ETag, because the compressed answer is the same answer.
    digest = f'"{hashlib.sha256(answer.content).hexdigest()[:32]}"'
    answer.headers["ETag"] = f"W/{digest}"
    client_etags = parse_etags(request.headers.get("If-None-Match", ""))
    if "*" not in client_etags and digest not in (etag.removeprefix("W/") for etag in client_etags):
        return answer
    return HttpResponseNotModified(
        headers={name: answer.headers[name] for name in _KEPT_HEADERS if name in answer.headers}
    )
