"""Addresses of the support screens."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import urlencode

from django.http import HttpRequest
from django.urls import reverse

from history.entities import Entity
from history.record import MAX_VERSION
from history.timeline import Version

# Servers and proxies take a request line of about 8 KB.
LONGEST = 8000
# When a version was made: its number alone does not name it where a producer gave it twice.
AT, FROM_AT, TO_AT = "at", "fromAt", "toAt"
PATH = "path"
SINCE, WHOLE = "since", "whole"  # of newer()


def timeline(entity: Entity, id: str) -> str:
    """The timeline; the long form for an id with a slash, which may end like another page."""
    name = "admin:history_versions" if "/" in id else "admin:history_timeline"
    return reverse(name, args=[entity, id])


def with_path(timeline: str, path: str, query: Mapping[str, str]) -> str:
    """The timeline with only the versions that changed this path; empty for one that is too long
    for an address."""
    return _short(timeline, {**query, "path": path}) if path else ""


def field(entity: Entity, id: str, path: str) -> str:
    """The values of a field; empty for one that is too long for an address, or is the document."""
    address = reverse("admin:history_field", args=[entity, id])
    return _short(address, {"path": path}) if path else ""


def with_maker(timeline: str, version: Version, query: Mapping[str, str]) -> str:
    """The timeline with only the versions of who made this one: a person, else the service."""
    person = version.author
    maker = {"author": person.login} if person else {"clientId": version.client_id}
    return _with(timeline, {**query, **maker})


def application(id: str) -> str:
    return reverse("admin:history_application", args=[id])


def application_at(id: str) -> str:
    return reverse("admin:history_application_at", args=[id])


def newer(entity: Entity, id: str, since: datetime, *, whole: bool) -> str:
    """Whether there are newer versions than those of this moment. whole: also of the children."""
    asked = {SINCE: moment(since)} | ({WHOLE: ""} if whole else {})
    return _with(reverse("admin:history_newer", args=[entity, id]), asked)


def landing(entity: Entity, id: str) -> str:
    """The page that a search result leads to: an application opens with its children."""
    return application(id) if entity.root else timeline(entity, id)


def state(entity: Entity, id: str) -> str:
    return reverse("admin:history_state", args=[entity, id])


def snapshot(entity: Entity, id: str, version: int, made: datetime | None = None) -> str:
    """made: when the version was made; tells twins apart, which have one number."""
    address = reverse("admin:history_snapshot", args=[entity, id, version])
    return _with(address, {AT: moment(made)} if made else None)


def as_json(entity: Entity, id: str, version: int, made: datetime) -> str:
    """The JSON of a version, on its page."""
    return f"{snapshot(entity, id, version, made)}&as=json"


def unmask(entity: Entity, id: str, version: int, path: str, made: datetime) -> str:
    """Empty for a path that is too long for an address."""
    address = reverse("admin:history_unmask", args=[entity, id, version])
    return _short(address, {"path": path, AT: moment(made)})


def compare(entity: Entity, id: str, query: Mapping[str, str | int] | None = None) -> str:
    return _with(reverse("admin:history_compare", args=[entity, id]), query)


def comparison(
    entity: Entity,
    id: str,
    old: tuple[int, datetime],
    new: tuple[int, datetime],
    path: str | None = None,
) -> str:
    """The comparison of two versions, each named by its number and when it was made. path: the
    changes that fit it come first; without them for one that is too long for an address."""
    times = {FROM_AT: moment(old[1]), TO_AT: moment(new[1])}
    query: dict[str, str | int] = {"from": old[0], "to": new[0], **times}
    address = compare(entity, id, query | ({PATH: path} if path else {}))
    return address if len(address) <= LONGEST else compare(entity, id, query)


def moment(made: datetime) -> str:
    """A moment as in the parameters AT, FROM_AT and TO_AT."""
    return made.astimezone(UTC).isoformat().removesuffix("+00:00") + "Z"


def parse_moment(text: str | None) -> datetime | None:
    """The reverse of moment(); None for anything else."""
    try:
        made = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return made if made.tzinfo else None


def _with(address: str, query: Mapping[str, str | int] | None) -> str:
    return f"{address}?{urlencode(query)}" if query else address


def _short(address: str, query: Mapping[str, str]) -> str:
    found = _with(address, query)
    return found if len(found) <= LONGEST else ""


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
    """older_url, newer_url and newest_url, where there is such a page. address: without parameters.
    parameters: the filter. token: of the page itself, None: the first. following: of the next."""
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
    place = {PAGE: token, VISITED: ",".join(visited[-MAX_VISITED:])}
    return _with(address, {**parameters, **{name: text for name, text in place.items() if text}})


AFTER = "after"
# A page takes about a millisecond for each row. A small document can have thousands of changes.
MOST_ROWS = 500


def number(text: str) -> int | None:
    """The number of a version, or a place in a table; None for what is none."""
    found = int(text) if re.fullmatch(r"[0-9]{1,10}", text) else None
    return found if found is not None and found <= MAX_VERSION else None


def start_of(after: str, count: int) -> int:
    """The place of the first row of the page; 0 for what is no place in this table."""
    start = number(after) or 0
    return start if start < count else 0


def row_pages(address: str, start: int, count: int, text: str) -> dict[str, str]:
    """range_text, next_url and previous_url, as far as there are other pages. text: says which rows
    these are, with {first}, {last} and {count}."""
    end = min(start + MOST_ROWS, count)
    found: dict[str, str] = {}
    if end - start < count:
        found["range_text"] = text.format(first=start + 1, last=end, count=count)
    if end < count:
        found["next_url"] = after(address, end)
    if start:
        before = max(0, start - MOST_ROWS)
        found["previous_url"] = after(address, before) if before else address
    return found


def after(address: str, start: int) -> str:
    """The address of the page that begins with this row."""
    return f"{address}{'&' if '?' in address else '?'}{AFTER}={start}"
