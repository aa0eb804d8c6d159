"""Addresses of the support screens."""

from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import urlencode

from django.urls import reverse

from history.entities import Entity
from history.timeline import Version

# Servers and proxies take a request line of about 8 KB.
LONGEST = 8000
# When a version was made: its number alone does not name it where a producer gave it twice.
AT, FROM_AT, TO_AT = "at", "fromAt", "toAt"
PATH = "path"


def timeline(entity: Entity, id: str, query: Mapping[str, str | int] | None = None) -> str:
    """The timeline. The long form for an id with a slash: it may end like the address of another
    page."""
    name = "admin:history_versions" if "/" in id else "admin:history_timeline"
    return _with(reverse(name, args=[entity, id]), query)


def timeline_of_path(
    entity: Entity, id: str, path: str, query: Mapping[str, str | int] | None = None
) -> str:
    """The timeline with only the versions that changed this path; empty for the whole document,
    and for a path that is too long for an address."""
    return with_path(timeline(entity, id), path, query)


def with_path(timeline: str, path: str, query: Mapping[str, str | int] | None = None) -> str:
    """The same, with the address of the timeline given."""
    address = _with(timeline, {**(query or {}), "path": path}) if path else ""
    return address if len(address) <= LONGEST else ""


def with_maker(timeline: str, version: Version, query: Mapping[str, str]) -> str:
    """The same, with only the versions of who made this one: a person, or the service where there
    was no person."""
    person = version.author
    maker = {"author": person.login} if person else {"clientId": version.client_id}
    return _with(timeline, {**query, **maker})


def application(id: str, query: Mapping[str, str | int] | None = None) -> str:
    return _with(reverse("admin:history_application", args=[id]), query)


def application_at(id: str) -> str:
    return reverse("admin:history_application_at", args=[id])


def landing(entity: Entity, id: str) -> str:
    """The page that a search result leads to: an application opens with its children."""
    return application(id) if entity.root else timeline(entity, id)


def state(entity: Entity, id: str) -> str:
    return reverse("admin:history_state", args=[entity, id])


def snapshot(entity: Entity, id: str, version: int, made: datetime | None = None) -> str:
    """made: when the version was made; tells twins apart, which have one number."""
    address = reverse("admin:history_snapshot", args=[entity, id, version])
    return _with(address, {AT: moment(made)} if made else None)


def unmask(entity: Entity, id: str, version: int, path: str, made: datetime) -> str:
    """Empty for a path that is too long for an address."""
    address = reverse("admin:history_unmask", args=[entity, id, version])
    address = _with(address, {"path": path, AT: moment(made)})
    return address if len(address) <= LONGEST else ""


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
