"""The versions of the old service, as far as one request has asked for them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter

from history.documents.exactjson import Json
from history.entities import ROOT, Entity, root
from history.fallback.answer import OldVersion, Subject
from history.fallback.asked import Asked
from history.need_to_know import Unknown
from history.timeline.row import Key, Named, VersionRow, parse


@dataclass(frozen=True, slots=True)
class OldService:
    """A history.timeline.sources.merged.Supplement. Of one number the row of the tables counts.
    hidden: they alone are read, and nothing is asked for what is shown."""

    asked: Asked = field(default_factory=Asked)
    hidden: bool = False
    by_number = True

    @property
    def possible(self) -> bool:
        """Whether an old service may be asked."""
        return self.asked.possible and not self.hidden

    def want(self, entity: Entity, id: str) -> bool:
        """Ask for the versions of an entity, once in a request. Whether the old service has not
        failed; True where none is to be asked."""
        if not self.possible:
            return True
        if entity.root and self.asked.answers.get(Subject(None, id)) is not None:
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

    def rows(
        self, entity: Entity, id: str, owners: Callable[[], Collection[str]]
    ) -> Mapping[Key, VersionRow]:
        """The versions of an entity in the form of the store. Without those of a child of which
        nothing says whose they are: that decides who may see them."""
        theirs = self.of(entity, id).values()
        application: str | None = None
        if entity.parent is not None and any(each.product_instance_id is None for each in theirs):
            named = {each.product_instance_id for each in theirs if each.product_instance_id}
            known = named | set(owners())
            application = known.pop() if len(known) == 1 else None
        found: dict[Key, VersionRow] = {}
        for each in theirs:
            owner = each.product_instance_id or application
            if owner is None and entity.parent is not None:
                self.asked.missed()
                continue
            found[Key(each.version, each.updated_at)] = VersionRow(
                *(each.version, each.updated_at, each.type, each.client_id, each.author),
                *(owner, each.data, each.id, each.entity, True),
            )
        return found

    def of_application(self, application: str) -> Collection[Named]:
        """The entities that are the application, or name it in any version."""
        return dict.fromkeys(
            (each.entity, each.id)
            for its in self._known().values()
            for each in its.values()
            if application == (each.id if each.entity.root else each.product_instance_id)
        )

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
            whole = self.asked.answers.get(Subject(None, id))
            theirs = whole or self.asked.ask(Subject(root(), id), aside=True)
            if theirs is None:
                found[id] = Unknown.NOW
                continue
            documents = [each for each in theirs if each.entity is ROOT and each.data != b"null"]
            if documents:
                found[id] = parse(max(documents, key=attrgetter("version")).data)
        return found
