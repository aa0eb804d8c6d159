"""The author of what a request records is its user."""

from collections.abc import AsyncIterator, Callable, Iterator

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse

from outbox.author import Who, asking

GetResponse = Callable[[HttpRequest], HttpResponse]


def author_middleware(get_response: GetResponse) -> GetResponse:
    """Place it after AuthenticationMiddleware. A request without a logged-in user has no author."""

    def answer(request: HttpRequest) -> HttpResponse:
        def who() -> str | None:
            return _user(request)

        with asking(who):
            response = get_response(request)
        if isinstance(response, StreamingHttpResponse):
            _stream(response, who)
        return response

    return answer


def _user(request: HttpRequest) -> str | None:
    user = getattr(request, "user", None)
    return user.get_username() if user is not None and user.is_authenticated else None


def _stream(response: StreamingHttpResponse, who: Who) -> None:
    """Have the code that makes the content, which runs after the middleware, act for the user."""
    if getattr(response, "file_to_stream", None) is not None:
        return  # a file: the web server may send it itself
    content, close = response.streaming_content, response.close

    def close_as_author() -> None:
        """The end of a generator that the client does not read to its end can change rows, too."""
        with asking(who):
            close()

    response.close = close_as_author  # type: ignore[method-assign]
    if isinstance(content, AsyncIterator):
        response.streaming_content = _each_part_later(content, who)
    else:
        response.streaming_content = _each_part(iter(content), who)


def _each_part(content: Iterator[bytes], who: Who) -> Iterator[bytes]:
    """A generator runs in the context of its caller: the author is set for each step."""
    while True:
        with asking(who):
            try:
                part = next(content)
            except StopIteration:
                return
        yield part


async def _each_part_later(content: AsyncIterator[bytes], who: Who) -> AsyncIterator[bytes]:
    try:
        while True:
            with asking(who):
                try:
                    part = await anext(content)
                except StopAsyncIteration:
                    return
            yield part
    finally:
        close = getattr(content, "aclose", None)
        if close is not None:
            with asking(who):
                await close()
