"""Links to the older and the newer page. Tokens only lead to older ones, so the way that led
here travels along."""

from collections.abc import Mapping
from urllib.parse import urlencode

from django.http import HttpRequest

PAGE = "page"
WAY = "way"
LONGEST_WAY = 25


def pages(
    request: HttpRequest, address: str, parameters: Mapping[str, str], following: str | None
) -> dict[str, str]:
    """older_url, newer_url and newest_url, each only where there is such a page.

    address: of the page without parameters. parameters: the filter, kept on every page.
    following: the token of the next page.
    """
    here = request.GET.get(PAGE, "")
    way = [token for token in request.GET.get(WAY, "").split(",") if token]
    found: dict[str, str] = {}
    if following:
        found["older_url"] = _url(address, parameters, following, [*way, here] if here else way)
    if here:
        found["newest_url"] = _url(address, parameters, "", [])
        found["newer_url"] = _url(address, parameters, way[-1] if way else "", way[:-1])
    return found


def _url(address: str, parameters: Mapping[str, str], token: str, way: list[str]) -> str:
    asked = dict(parameters)
    if token:
        asked[PAGE] = token
    if way:
        asked[WAY] = ",".join(way[-LONGEST_WAY:])
    return f"{address}?{urlencode(asked)}" if asked else address
