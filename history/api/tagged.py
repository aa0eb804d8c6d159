"""ETag and If-None-Match for answers that a client may have already."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, cast

from django.http import HttpRequest, HttpResponse
from django.utils.cache import get_conditional_response, set_response_etag
from rest_framework.response import Response


def tagged(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """The view with an ETag on each answer that succeeds, and 304 where the client has it. HEAD is
    answered as GET is; Django's own decorator leaves it out."""

    @wraps(view)
    def answered(*args: Any, **kwargs: Any) -> HttpResponse:
        response = view(*args, **kwargs)
        if isinstance(response, Response):  # an error is a plain HttpResponse
            response.add_post_render_callback(partial(_compared, args[0]))
        return response

    return answered


def _compared(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    if response.status_code != 200:
        return response
    set_response_etag(response)
    found = get_conditional_response(request, etag=response.headers["ETag"], response=response)
    answer = cast(HttpResponse, found)
    if answer is not response:
        # Django's 304 has none of the headers of this API; the request was counted.
        for name, value in response.headers.items():
            if name.startswith("RateLimit-"):
                answer.headers[name] = value
    return answer
