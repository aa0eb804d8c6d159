"""The author of what a request records is its user."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware

from outbox.author import asking

Later = Callable[[HttpRequest], Awaitable[HttpResponse]]
Now = Callable[[HttpRequest], HttpResponse]


@sync_and_async_middleware
def author_middleware(get_response: Any) -> Now | Later:
    """Place it after AuthenticationMiddleware. A request without a logged-in user has no author."""
    if iscoroutinefunction(get_response):
        later = cast(Later, get_response)

        async def answer_later(request: HttpRequest) -> HttpResponse:
            with asking(lambda: _user(request)):
                return await later(request)

        return answer_later

    def answer(request: HttpRequest) -> HttpResponse:
        with asking(lambda: _user(request)):
            return cast(Now, get_response)(request)

    return answer


def _user(request: HttpRequest) -> str | None:
    user = getattr(request, "user", None)
    return user.get_username() if user is not None and user.is_authenticated else None
