"""The versions of the old service, as far as the present request has asked for them.

In memory only; what the store has instead of them is decided in history.timeline.sources.union.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from operator import attrgetter

from history import fallback
from history.documents.exactjson import Json
from history.entities import ROOT, Entity, root
from history.fallback import OldVersion, Subject
from history.need_to_know import Unknown
from history.timeline.versions import parse

_hidden: ContextVar[bool] = ContextVar("history.timeline.old.hidden", default=False)


def possible() -> bool:
    """Whether the present request may ask an old service."""
    asked = fallback.present()
    return asked is not None and asked.possible and not _hidden.get()


def want(entity: Entity, id: str) -> bool:
    """Ask for the versions of an entity, once in a request. Whether the old service has not failed;
    True where none is to be asked."""
    asked = fallback.present()
    if asked is None or not possible():
        return True
    if entity.root and asked.answers().get(Subject(None, id)) is not None:
        return True
    return asked.ask(Subject(entity, id)) is not None


def want_application(id: str) -> bool:
    """As want(), for an application and its children."""
    asked = fallback.present()
    if asked is None or not possible():
        return True
    return asked.ask(Subject(None, id)) is not None


@contextmanager
def hidden() -> Iterator[None]:
    """The block reads the store alone, and asks nothing."""
    token = _hidden.set(True)
    try:
        yield
    finally:
        _hidden.reset(token)


def _known() -> Mapping[tuple[str, str], Mapping[int, OldVersion]]:
    asked = fallback.present()
    return {} if asked is None or _hidden.get() else asked.versions


def of(entity: Entity, id: str) -> Mapping[int, OldVersion]:
    """The versions of an entity by their number."""
    return _known().get((entity.name, id), {})


def of_application(id: str) -> dict[tuple[Entity, str], dict[int, OldVersion]]:
    """The versions of an application and its children, by entity and number."""
    found: dict[tuple[Entity, str], dict[int, OldVersion]] = {}
    for its in _known().values():
        for each in its.values():
            if id == (each.id if each.entity.root else each.product_instance_id):
                found.setdefault((each.entity, each.id), {})[each.version] = each
    return found


def owners(entity: Entity, ids: Collection[str]) -> set[str]:
    """The applications that any version of these entities belongs to."""
    return {
        each.product_instance_id or each.id
        for id in ids
        for each in of(entity, id).values()
        if entity.root or each.product_instance_id
    }


def other_moment(entity: Entity, id: str, version: int, made: datetime) -> datetime | None:
    """When the old service has this version, if at another moment than this one."""
    theirs = of(entity, id).get(version)
    return None if theirs is None or theirs.updated_at == made else theirs.updated_at


def root_documents(applications: Collection[str]) -> Mapping[str, Json | Unknown]:
    """The newest document of each of these applications, not masked; without those of which the old
    service has none, which is asked also where the answer is of the store alone. Unknown where it
    does not answer."""
    asked = fallback.present()
    found: dict[str, Json | Unknown] = {}
    if asked is None or not asked.possible:
        return found
    for id in sorted(applications):
        whole = asked.answers().get(Subject(None, id))
        theirs = whole or asked.ask(Subject(root(), id), aside=True)
        if theirs is None:
            found[id] = Unknown.NOW
            continue
        documents = [each for each in theirs if each.entity is ROOT and each.data != b"null"]
        if documents:
            found[id] = parse(max(documents, key=attrgetter("version")).data)
    return found
