"""The old service, as far as one request has asked it: each timeline once."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from operator import attrgetter
from typing import TypeAlias

from history.documents.exactjson import Json
from history.entities import ROOT, Entity, root
from history.requests import deadline
from history.timeline.query import AskedState, storable
from history.timeline.sources.tables import Tables
from history.versions import Key, Named, Subject, VersionRow, parse

# Asks for a timeline, for so many seconds at most; None where that failed.
Call: TypeAlias = Callable[[Subject, float], list[VersionRow] | None]


class OldService:
    """A history.timeline.sources.merged.Supplement. Of one number the row of the tables counts."""

    by_number = True

    def __init__(self, call: Call | None = None, seconds: float = 0.0) -> None:
        """call: None where there is none, or it must not be asked. seconds: for all questions."""
        self._call = call
        self._left = seconds
        self._answers: dict[Subject, list[VersionRow] | None] = {}  # so far
        self._wanted: set[Subject] = set()  # those that are shown
        self._missed = False
        # Of each entity, by the number of the version.
        self._versions: defaultdict[Named, dict[int, VersionRow]] = defaultdict(dict)
        self._owners: dict[Named, set[str]] = {}  # by the tables, where they were asked

    @property
    def possible(self) -> bool:
        """Whether there is an old service that may be asked."""
        return self._call is not None

    @property
    def state(self) -> AskedState | None:
        """None where nothing was asked for the answer."""
        # Without one that was wanted when the request ended: it was not asked for.
        shown = [self._answers[subject] for subject in self._wanted & self._answers.keys()]
        if self._missed or None in shown:
            return AskedState.FAILED
        return AskedState.ANSWERED if shown else None

    @property
    def failed(self) -> bool:
        """Whether versions may be missing because the old service did not give them."""
        return self.state is AskedState.FAILED

    def missed(self) -> None:
        """The answer lacks versions of the old service although nothing was asked now."""
        self._missed = True

    def want(self, entity: Entity | None, id: str) -> bool:
        """Ask for the versions of an entity, or (None) of an application and its children. Whether
        the old service has not failed; True where there is none."""
        if not self.possible:
            return True
        whole = Subject(None, id)
        if entity is not None and entity.root and self._answers.get(whole) is not None:
            return True
        subject = Subject(entity, id)
        self._wanted.add(subject)
        return self._ask(subject) is not None

    def _ask(self, subject: Subject) -> list[VersionRow] | None:
        """The versions that the old service has, from the first answer in this request; None if it
        failed."""
        if subject not in self._answers:
            found = self._answers[subject] = self._called(subject)
            for each in found or ():
                self._versions[each.entity, each.id].setdefault(each.version, each)
        return self._answers[subject]

    def _called(self, subject: Subject) -> list[VersionRow] | None:
        if self._call is None:
            return None
        if not storable(subject.id) or subject.id in (".", ".."):  # these lead elsewhere
            return []
        failed = None in self._answers.values()
        if failed or (self._missed and subject in self._wanted):
            return None
        deadline.check()
        began = time.monotonic()
        found = self._call(subject, self._left)
        self._left -= time.monotonic() - began
        return found

    def of(self, entity: Entity, id: str) -> Mapping[int, VersionRow]:
        """The versions of an entity by their number."""
        return self._versions.get((entity, id), {})

    def rows(self, entity: Entity, id: str) -> Mapping[Key, VersionRow]:
        """Without the versions of a child of which nothing says whose they are: that decides who
        may see them."""
        found = list(self.of(entity, id).values())
        if entity.parent is None or all(row.product_instance_id for row in found):
            return {row.key: row for row in found}
        named = {row.product_instance_id for row in found if row.product_instance_id}
        if (entity, id) not in self._owners:
            self._owners[entity, id] = Tables().owners(entity, [id]).get(id, set())
        known = named | self._owners[entity, id]
        owner = known.pop() if len(known) == 1 else None
        if owner is None:
            self.missed()
        whose = [
            row._replace(product_instance_id=row.product_instance_id or owner) for row in found
        ]
        return {row.key: row for row in whose if row.product_instance_id}

    def of_application(self, application: str) -> Collection[Named]:
        """The entities that are the application, or name it in any version."""
        return dict.fromkeys(
            (each.entity, each.id)
            for its in self._versions.values()
            for each in its.values()
            if application == (each.id if each.entity.root else each.product_instance_id)
        )

    def other_moment(self, row: VersionRow) -> datetime | None:
        """When the old service has this version, if at another moment; of a child, if it is known
        whose version that is."""
        theirs = self.of(row.entity, row.id).get(row.version)
        if theirs is None or theirs.updated_at == row.updated_at:
            return None
        named = theirs.entity.parent is None or theirs.product_instance_id
        shown = named or theirs.key in self.rows(row.entity, row.id)
        return theirs.updated_at if shown else None

    def root_documents(self, applications: Collection[str]) -> dict[str, Json]:
        """As need_to_know.Documents. The old service is asked also where the answer is of the store
        alone."""
        if not self.possible:
            return dict.fromkeys(applications)
        found: dict[str, Json] = {}
        for id in sorted(applications):
            whole = self._answers.get(Subject(None, id))
            theirs = whole or self._ask(Subject(root(), id))
            if theirs is not None:
                documents = [row for row in theirs if row.entity is ROOT and row.data != b"null"]
                newest = max(documents, key=attrgetter("version"), default=None)
                found[id] = parse(newest.data) if newest else None
        return found
