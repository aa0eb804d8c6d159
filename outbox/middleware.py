"""Middleware that makes the user of a request the author of versions recorded during it."""

from collections.abc import AsyncIterator, Callable, Iterator

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse

from outbox.recording.author import FindAuthor, use_author_of

GetResponse = Callable[[HttpRequest], HttpResponse]


def author_middleware(get_response: GetResponse) -> GetResponse:
    """Make the user of a request the author of the versions that are recorded during the request.

    Place this middleware after AuthenticationMiddleware. Without a logged-in user, the author is
    None.
    """

    def respond(request: HttpRequest) -> HttpResponse:
        def find_user() -> str | None:
            return _find_user_name(request)

        with use_author_of(find_user):
            response = get_response(request)
        if isinstance(response, StreamingHttpResponse):
            _act_for_user_while_streaming(response, find_user)
        return response

    return respond


def _find_user_name(request: HttpRequest) -> str | None:
    user = getattr(request, "user", None)
    return user.get_username() if user is not None and user.is_authenticated else None


def _act_for_user_while_streaming(response: StreamingHttpResponse, find_author: FindAuthor) -> None:
    """Keep the user of the request as the author of versions while the response is streamed.

    Django streams the response after the middleware has returned.
    """
    if getattr(response, "file_to_stream", None) is not None:
        return  # a file, which the web server may send by itself
    content, close = response.streaming_content, response.close

    def close_as_author() -> None:
        """Close the response. The user is the author of versions that are recorded meanwhile.

        If the client did not read to the end, closing ends the generator of the response. The
        `finally` blocks of the generator can change rows, and so record versions.
        """
        with use_author_of(find_author):
            close()

    response.close = close_as_author  # type: ignore[method-assign]
    if isinstance(content, AsyncIterator):
        response.streaming_content = _iterate_async_as_author(content, find_author)
    else:
        response.streaming_content = _iterate_as_author(iter(content), find_author)


def _iterate_as_author(content: Iterator[bytes], find_author: FindAuthor) -> Iterator[bytes]:
    """Yield the chunks of the response, and set the author while each chunk is made."""
    while True:
        with use_author_of(find_author):
            try:
                chunk = next(content)
            except StopIteration:
                return
        yield chunk


async def _iterate_async_as_author(
    content: AsyncIterator[bytes], find_author: FindAuthor
) -> AsyncIterator[bytes]:
    try:
        while True:
            with use_author_of(find_author):
                try:
                    chunk = await anext(content)
                except StopAsyncIteration:
                    return
            yield chunk
    finally:
        close = getattr(content, "aclose", None)
        if close is not None:
            with use_author_of(find_author):
                await close()
