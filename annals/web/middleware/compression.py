"""Compresses answers of the API with gzip if the header Accept-Encoding prefers that (RFC 9110)."""

from collections.abc import Callable
from typing import Final, NamedTuple

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from django.utils.cache import patch_vary_headers
from django.utils.text import compress_string

_API: Final = "/api/v1/"
_SMALLEST_BYTES: Final = 200
# Random bytes in the gzip header hide the length of the text: see django.middleware.gzip.
_MOST_RANDOM_BYTES: Final = GZipMiddleware.max_random_bytes


class CompressionMiddleware:
    """Middleware that compresses the answers of the API. Pages for browsers stay plain."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        return compress(request, response) if request.path.startswith(_API) else response


def compress(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    """Return the answer, compressed if the client prefers that and the answer gets smaller.

    If the client refuses plain answers (`identity;q=0`), the answer is always compressed. If it
    refuses both, the answer stays plain, as RFC 9110 allows.
    """
    patch_vary_headers(response, ("Accept-Encoding",))
    accepted = read_accepted_codings(request.headers.get("Accept-Encoding", ""))
    if not accepted.prefers_gzip or not isinstance(response, HttpResponse):
        return response
    content = response.content
    may_stay = accepted.identity > 0 or not content
    if may_stay and len(content) < _SMALLEST_BYTES:
        return response
    compressed = compress_string(content, max_random_bytes=_MOST_RANDOM_BYTES)
    if may_stay and len(compressed) >= len(content):
        return response
    response.content = compressed
    response.headers["Content-Length"] = str(len(compressed))
    response.headers["Content-Encoding"] = "gzip"
    return response


class AcceptedCodings(NamedTuple):
    """The weights in Accept-Encoding of plain and of compressed answers: 0 (refused) to 1."""

    identity: float
    gzip: float

    @property
    def prefers_gzip(self) -> bool:
        return self.gzip > 0 and self.gzip >= self.identity


def read_accepted_codings(header: str) -> AcceptedCodings:
    """Parse a header `Accept-Encoding`. A weight that cannot be parsed counts as 0."""
    weights: dict[str, float] = {}
    for item in header.lower().split(","):
        coding, *parameters = (part.strip() for part in item.split(";"))
        weights[coding] = _parse_weight(parameters)
    for_others = weights.get("*", 0.0)
    gzip = weights.get("gzip", weights.get("x-gzip", for_others))
    # `identity` is acceptable even if the header does not name it, but less than a named coding.
    identity = weights.get("identity", 0.0 if weights.get("*") == 0 else min(gzip, 0.001) or 1.0)
    return AcceptedCodings(identity, gzip)


def _parse_weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                weight = float(value)
            except ValueError:
                return 0.0
            return weight if 0 <= weight <= 1 else 0.0
    return 1.0
