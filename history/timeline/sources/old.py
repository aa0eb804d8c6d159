"""The versions of the old service, as far as one request has asked for them.

In memory only; what the store has instead of them is decided in history.timeline.sources.merged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter

from history.documents.exactjson import Json
from history.entities import ROOT, Entity, root
from history.fallback import Asked, OldVersion, Subject
from history.need_to_know import Unknown
from history.timeline.versions import parse


@dataclass(frozen=True, slots=True)
class OldService:
    """hidden: the store alone is read, and nothing is asked for what is shown."""

    asked: Asked = field(default_factory=Asked)
    hidden: bool = False

    @property
    def possible(self) -> bool:
        """Whether an old service may be asked."""
        return self.asked.possible and not self.hidden

    def want(self, entity: Entity, id: str) -> bool:
        """Ask for the versions of an entity, once in a request. Whether the old service has not
        failed; True where none is to be asked."""
        if not self.possible:
            return True
        if entity.root and self.asked.answers().get(Subject(None, id)) is not None:
            return True
        return self.asked.ask(Subject(entity, id)) is not None

    def want_application(self, id: str) -> bool:
        """As want(), for an application and its children."""
        return not self.possible or self.asked.ask(Subject(None, id)) is not None

    def _known(self) -> Mapping[tuple[str, str], Mapping[int, OldVersion]]:
        return {} if self.hidden else self.asked.versions

    def of(self, entity: Entity, id: str) -> Mapping[int, OldVersion]:
        """The versions of an entity by their number."""
        return self._known().get((entity.name, id), {})

    def of_application(self, id: str) -> dict[tuple[Entity, str], dict[int, OldVersion]]:
        """The versions of an application and its children, by entity and number."""
        found: dict[tuple[Entity, str], dict[int, OldVersion]] = {}
        for its in self._known().values():
            for each in its.values():
                if id == (each.id if each.entity.root else each.product_instance_id):
                    found.setdefault((each.entity, each.id), {})[each.version] = each
        return found

    def owners(self, entity: Entity, ids: Collection[str]) -> set[str]:
        """The applications that any version of these entities belongs to."""
        return {
            each.product_instance_id or each.id
            for id in ids
            for each in self.of(entity, id).values()
            if entity.root or each.product_instance_id
        }

    def other_moment(
        self, entity: Entity, id: str, version: int, made: datetime
    ) -> datetime | None:
        """When the old service has this version, if at another moment than this one."""
        theirs = self.of(entity, id).get(version)
        return None if theirs is None or theirs.updated_at == made else theirs.updated_at

    def root_documents(self, applications: Collection[str]) -> Mapping[str, Json | Unknown]:
        """The newest document of each of these applications, not masked; without those of which
        the old service has none, which is asked also where the answer is of the store alone.
        Unknown where it does not answer."""
        found: dict[str, Json | Unknown] = {}
        for id in sorted(applications) if self.asked.possible else ():
            whole = self.asked.answers().get(Subject(None, id))
            theirs = whole or self.asked.ask(Subject(root(), id), aside=True)
            if theirs is None:
                found[id] = Unknown.NOW
                continue
            documents = [each for each in theirs if each.entity is ROOT and each.data != b"null"]
            if documents:
                found[id] = parse(max(documents, key=attrgetter("version")).data)
        return found
