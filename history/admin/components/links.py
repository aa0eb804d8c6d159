"""Builds the addresses of the support screens, and reads the parameters in them."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from history.documents.record import MAX_VERSION
from history.kinds.entities import EntityKind
from history.timeline import Version

# Servers and proxies take a request line of about 8 KB.
MAX_URL_LENGTH = 8000
# The parameters for the moments of versions: a producer may have used a version number twice.
AT, FROM_AT, TO_AT = "at", "fromAt", "toAt"
PATH = "path"
SINCE, WHOLE = "since", "whole"  # the parameters of build_newer_url


def build_timeline_url(entity: EntityKind, id: str) -> str:
    """Return the address of a document's timeline.

    An id with a slash gets the long form of the address, because the short form could end like the
    address of a different page.
    """
    name = "admin:history_versions" if "/" in id else "admin:history_timeline"
    return reverse(name, args=[entity, id])


def build_timeline_url_for_path(timeline: str, path: str, query: Mapping[str, str]) -> str:
    """Return the address of the timeline with only the versions that changed this path.

    Empty if the path is too long for an address.
    """
    return _build_short_url(timeline, {**query, "path": path}) if path else ""


def build_field_url(entity: EntityKind, id: str, path: str) -> str:
    """Return the address of the page with the values of a field.

    Empty if `path` is too long for an address. Also empty if `path` is empty, because an empty path
    means the whole document.
    """
    address = reverse("admin:history_field", args=[entity, id])
    return _build_short_url(address, {"path": path}) if path else ""


def build_timeline_url_for_maker(timeline: str, version: Version, query: Mapping[str, str]) -> str:
    """Return the address of the timeline with only the versions that `version`'s maker made.

    The maker is the version's author, or its service if it does not have an author.
    """
    person = version.author
    maker = {"author": person.login} if person else {"clientId": version.client_id}
    return _add_query(timeline, {**query, **maker})


def build_changes_url(query: Mapping[str, str]) -> str:
    """Return the address of the page of changes. `query` has the parameters of its filter."""
    return _add_query(reverse("admin:history_changes"), query)


def build_day_url(version: Version, *, by_service: bool = False) -> str:
    """Return the address of all changes that the author of a version made on the same day.

    With `by_service`, or if the version does not have an author, these are the changes that its
    service made on that day.
    """
    moment = timezone.localtime(version.updated_at)
    person = None if by_service else version.author
    maker = {"author": person.login} if person else {"clientId": version.client_id}
    following = moment.date() + timedelta(days=1)
    return build_changes_url(
        {
            **maker,
            "from": f"{moment:%d.%m.%Y}",
            "to": f"{following:%d.%m.%Y}",
            "tz": timezone.get_current_timezone_name(),
        }
    )


def build_person_url(login: str) -> str:
    return reverse("admin:history_person_page", args=[login])


def build_application_url(id: str) -> str:
    return reverse("admin:history_application", args=[id])


def build_moment_url(id: str) -> str:
    return reverse("admin:history_application_at", args=[id])


def build_newer_url(entity: EntityKind, id: str, since: datetime, *, whole: bool) -> str:
    """Return the address at which a page asks how many versions are newer than `since`.

    With `whole`, versions of the children count too.
    """
    query = {SINCE: format_moment(since)} | ({WHOLE: ""} if whole else {})
    return _add_query(reverse("admin:history_newer", args=[entity, id]), query)


def build_landing_url(entity: EntityKind, id: str) -> str:
    """Return the address that a search result opens: the timeline of the document.

    For an application it is the timeline with its children.
    """
    return build_application_url(id) if entity.root else build_timeline_url(entity, id)


def build_state_url(entity: EntityKind, id: str) -> str:
    return reverse("admin:history_state", args=[entity, id])


def build_snapshot_url(
    entity: EntityKind, id: str, version: int, moment: datetime | None = None
) -> str:
    """Return the address of a version's page.

    The moment is needed if several versions have this number.
    """
    address = reverse("admin:history_snapshot", args=[entity, id, version])
    return _add_query(address, {AT: format_moment(moment)} if moment else None)


def build_json_url(entity: EntityKind, id: str, version: int, moment: datetime) -> str:
    """Return the address of the page with a version's JSON."""
    return f"{build_snapshot_url(entity, id, version, moment)}&as=json"


def build_unmask_url(entity: EntityKind, id: str, version: int, path: str, moment: datetime) -> str:
    """Return the address that unmasks a value; empty if the path is too long for an address."""
    address = reverse("admin:history_unmask", args=[entity, id, version])
    return _build_short_url(address, {"path": path, AT: format_moment(moment)})


def build_compare_url(
    entity: EntityKind, id: str, query: Mapping[str, str | int] | None = None
) -> str:
    return _add_query(reverse("admin:history_compare", args=[entity, id]), query)


def build_comparison_url(
    entity: EntityKind,
    id: str,
    old: tuple[int, datetime],
    new: tuple[int, datetime],
    path: str | None = None,
) -> str:
    """Return the address that compares two versions, each given by number and moment.

    Changes that match `path` come first, unless the path is too long for an address.
    """
    times = {FROM_AT: format_moment(old[1]), TO_AT: format_moment(new[1])}
    query: dict[str, str | int] = {"from": old[0], "to": new[0], **times}
    address = build_compare_url(entity, id, query | ({PATH: path} if path else {}))
    return address if len(address) <= MAX_URL_LENGTH else build_compare_url(entity, id, query)


def format_moment(moment: datetime) -> str:
    """Format a moment for the parameters AT, FROM_AT and TO_AT."""
    return moment.astimezone(UTC).isoformat().removesuffix("+00:00") + "Z"


def parse_moment(text: str | None) -> datetime | None:
    """Parse the output of format_moment; return None for any other text."""
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def _add_query(address: str, query: Mapping[str, str | int] | None) -> str:
    return f"{address}?{urlencode(query)}" if query else address


def _build_short_url(address: str, query: Mapping[str, str]) -> str:
    url = _add_query(address, query)
    return url if len(url) <= MAX_URL_LENGTH else ""


PAGE = "page"
VISITED = "visited"
MAX_VISITED = 25


def build_page_urls(
    request: HttpRequest,
    address: str,
    parameters: Mapping[str, str],
    token: str | None,
    following: str | None,
) -> dict[str, str]:
    """Return `older_url`, `newer_url` and `newest_url`, each only if there is such a page.

    Args:
        request: The request of this page. Its parameter VISITED has the tokens of newer pages.
        address: The address of the page without parameters.
        parameters: The parameters of the filter.
        token: The token of this page; None for the first page.
        following: The token of the next, older page; None on the last page.
    """
    own_token = token or ""
    visited = [token for token in request.GET.get(VISITED, "").split(",") if token]
    urls: dict[str, str] = {}
    if following:
        urls["older_url"] = _build_page_url(
            address, parameters, following, [*visited, own_token] if own_token else visited
        )
    if own_token:
        urls["newest_url"] = _build_page_url(address, parameters, "", [])
        urls["newer_url"] = _build_page_url(
            address, parameters, visited[-1] if visited else "", visited[:-1]
        )
    return urls


def _build_page_url(
    address: str, parameters: Mapping[str, str], token: str, visited: list[str]
) -> str:
    page = {PAGE: token, VISITED: ",".join(visited[-MAX_VISITED:])}
    return _add_query(
        address, {**parameters, **{name: text for name, text in page.items() if text}}
    )


AFTER = "after"
# A page takes about a millisecond for each row. A small document can have thousands of changes.
MOST_ROWS = 500


def parse_number(text: str) -> int | None:
    """Parse a whole number from 0 to MAX_VERSION. Return None for any other text."""
    value = int(text) if re.fullmatch(r"[0-9]{1,10}", text) else None
    return value if value is not None and value <= MAX_VERSION else None


def parse_start(after: str, count: int) -> int:
    """Parse the index of the first row that a page shows of a table with `count` rows.

    Returns 0 if `after` is not a number, or if the table does not have a row with this index.
    """
    start = parse_number(after) or 0
    return start if start < count else 0


def build_row_page_urls(address: str, start: int, count: int, text: str) -> dict[str, str]:
    """Return the addresses of the next and the previous page of a table, and `range_text`.

    `next_url` and `previous_url` are missing if there is no such page. `range_text` is missing if
    the table has only one page.

    Args:
        address: The address of the first page.
        start: The index of the first row on this page.
        count: The number of rows of the table.
        text: The template of `range_text`, with {first}, {last} and {count}.
    """
    end = min(start + MOST_ROWS, count)
    urls: dict[str, str] = {}
    if end - start < count:
        urls["range_text"] = text.format(first=start + 1, last=end, count=count)
    if end < count:
        urls["next_url"] = build_rows_url(address, end)
    if start:
        before = max(0, start - MOST_ROWS)
        urls["previous_url"] = build_rows_url(address, before) if before else address
    return urls


def build_rows_url(address: str, start: int) -> str:
    """Return the address of the page that begins with the row at index `start`."""
    return f"{address}{'&' if '?' in address else '?'}{AFTER}={start}"
