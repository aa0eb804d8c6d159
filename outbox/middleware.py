"""The author of what a request records is its user."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from outbox.author import asking

GetResponse = Callable[[HttpRequest], HttpResponse]


def author_middleware(get_response: GetResponse) -> GetResponse:
    """Place it after AuthenticationMiddleware. A request without a logged-in user has no author."""

    def answer(request: HttpRequest) -> HttpResponse:
        with asking(lambda: _user(request)):
            return get_response(request)

    return answer


def _user(request: HttpRequest) -> str | None:
    user = getattr(request, "user", None)
    return user.get_username() if user is not None and user.is_authenticated else None
