"""Who makes the change: the user of the request."""

from collections.abc import Callable
from contextvars import ContextVar

from django.http import HttpRequest, HttpResponse

author: ContextVar[str | None] = ContextVar("author", default=None)

Answer = Callable[[HttpRequest], HttpResponse]


def middleware(get_response: Answer) -> Answer:
    def answer(request: HttpRequest) -> HttpResponse:
        token = author.set(request.user.get_username() or None)
        try:
            return get_response(request)
        finally:
            author.reset(token)

    return answer
