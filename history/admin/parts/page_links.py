"""Links to the older and the newer page. A token leads to the older page only, so that a link also
carries the tokens of the pages that were visited before."""

from collections.abc import Mapping
from urllib.parse import urlencode

from django.http import HttpRequest

PAGE = "page"
VISITED = "visited"
MAX_VISITED = 25


def pages(
    request: HttpRequest,
    address: str,
    parameters: Mapping[str, str],
    token: str | None,
    following: str | None,
) -> dict[str, str]:
    """older_url, newer_url and newest_url, each only where there is such a page.

    address: of the page without parameters. parameters: the filter, kept on every page.
    token: that of the page itself, None for the first one. following: that of the next page.
    """
    here = token or ""
    visited = [token for token in request.GET.get(VISITED, "").split(",") if token]
    found: dict[str, str] = {}
    if following:
        found["older_url"] = _url(
            address, parameters, following, [*visited, here] if here else visited
        )
    if here:
        found["newest_url"] = _url(address, parameters, "", [])
        found["newer_url"] = _url(address, parameters, visited[-1] if visited else "", visited[:-1])
    return found


def _url(address: str, parameters: Mapping[str, str], token: str, visited: list[str]) -> str:
    asked = dict(parameters)
    if token:
        asked[PAGE] = token
    if visited:
        asked[VISITED] = ",".join(visited[-MAX_VISITED:])
    return f"{address}?{urlencode(asked)}" if asked else address
