"""What every call must answer, from a list of all versions, in the plainest way."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from tests.oracle import values
from tests.oracle.values import ABSENT, Path, Value

KINDS = ("product-instance", "participant-role", "product-task", "realty-info", "product-car")
ROOT = KINDS[0]
TYPES = ("CREATE", "UPDATE", "DELETE")
_REALTY = {
    "realtyCrmId": ("/realtyCrmId",),
    "submissionId": ("/submissionId", "/encumbrance/submissionId"),
}
# Where the documents of each kind have their business keys.
BUSINESS_KEYS: dict[str, dict[str, tuple[str, ...]]] = {
    ROOT: {"number": ("/number",), **_REALTY},
    "participant-role": {"clientId": ("/clientId",)},
    "realty-info": _REALTY,
}


@dataclass(frozen=True)
class ReferenceResult:
    """What a search finds. newest: None for an application of which only children are known.
    moment: when it changed last, as far as is known. carriers: the documents with the key."""

    kind: str
    id: str
    newest: StoredVersion | None
    moment: datetime
    names: frozenset[str]
    carriers: frozenset[tuple[str, str]]


@dataclass(frozen=True)
class StoredVersion:
    """One version as it is in the database. data: as values.read gives it."""

    kind: str
    id: str
    version: int
    at: datetime
    type: str
    author: str | None
    client: str
    application: str | None
    data: Value = field(compare=False)

    @property
    def entity(self) -> tuple[str, str]:
        return self.kind, self.id

    @property
    def key(self) -> tuple[int, datetime]:
        return self.version, self.at


@dataclass(frozen=True)
class ReferenceFilters:
    since: datetime | None = None
    until: datetime | None = None
    author: str | None = None
    client: str | None = None
    type: str | None = None

    def is_selected(self, one: StoredVersion) -> bool:
        return (
            (self.since is None or self.since <= one.at)
            and (self.until is None or one.at < self.until)
            and self.author in (None, one.author)
            and self.client in (None, one.client)
            and self.type in (None, one.type)
        )


class ReferenceStore:
    """All stored versions."""

    def __init__(self, stored: Sequence[StoredVersion]) -> None:
        self.stored = list(stored)

    def list_entities(self) -> list[tuple[str, str]]:
        return sorted({one.entity for one in self.stored})

    def list_versions(self, kind: str, id: str) -> list[StoredVersion]:
        """The versions of one entity by number; of one number the older one first."""
        return sorted((one for one in self.stored if one.entity == (kind, id)), key=_key)

    def find_previous(self, one: StoredVersion) -> StoredVersion | None:
        """What a version is compared with: the nearest lower number; of twins the latest that is
        not younger, else the oldest."""
        lower = [other for other in self.list_versions(*one.entity) if other.version < one.version]
        twins = [other for other in lower if other.version == lower[-1].version]
        not_younger = [twin for twin in twins if twin.at <= one.at]
        return not_younger[-1] if not_younger else twins[0] if twins else None

    def find_previous_snapshot(self, one: StoredVersion) -> Value:
        """The snapshot that a version is compared with, ABSENT if there is none."""
        previous = self.find_previous(one)
        return previous.data if previous else ABSENT

    def find_missing(self, one: StoredVersion) -> list[int]:
        previous = self.find_previous(one)
        return list(range(previous.version + 1, one.version)) if previous else []

    def find_missing_after(self, one: StoredVersion) -> list[int]:
        """The numbers between a version and the next one of its entity."""
        above = [
            version.version
            for version in self.list_versions(one.kind, one.id)
            if version.version > one.version
        ]
        return list(range(one.version + 1, min(above))) if above else []

    def find_newest(self, kind: str, id: str) -> StoredVersion:
        return self.list_versions(kind, id)[-1]

    def list_chain(self, kind: str, id: str) -> Iterator[StoredVersion]:
        """From the newest version down, each the one that the last was compared with."""
        one: StoredVersion | None = self.find_newest(kind, id)
        while one is not None:
            yield one
            one = self.find_previous(one)

    def list_timeline(
        self, kind: str, id: str, filters: ReferenceFilters, sort: str, order: str
    ) -> list[StoredVersion]:
        place: Callable[[StoredVersion], tuple[object, ...]] = (
            _key if sort == "version" else lambda one: (one.at, one.version)
        )
        found = [one for one in self.list_versions(kind, id) if filters.is_selected(one)]
        return sorted(found, key=place, reverse=order == "desc")

    def list_application(
        self, id: str, filters: ReferenceFilters, order: str
    ) -> list[StoredVersion]:
        found = [
            one
            for one in self.stored
            if (one.id if one.kind == ROOT else one.application) == id and filters.is_selected(one)
        ]
        return sorted(
            found,
            key=lambda one: (one.at, KINDS.index(one.kind), one.id, one.version),
            reverse=order == "desc",
        )

    def find_at(self, kind: str, id: str, moment: datetime) -> StoredVersion | None:
        """The highest version that was there at a moment."""
        there = [one for one in self.list_versions(kind, id) if one.at <= moment]
        return there[-1] if there else None

    def find_application_at(self, id: str, moment: datetime) -> list[StoredVersion]:
        """The application and the children that named it in their version of then."""
        found = []
        for kind, part in sorted(self.list_entities(), key=lambda e: (KINDS.index(e[0]), e[1])):
            one = self.find_at(kind, part, moment)
            if one and (part == id if kind == ROOT else one.application == id):
                found.append(one)
        return found

    def search(self, text: str) -> list[ReferenceResult]:
        """Entities with the id, by kind, an application also if there are only children of it;
        then applications with the key, newest change first."""
        by_id = [
            ReferenceResult(kind, text, newest, newest.at, frozenset(), frozenset())
            for kind in KINDS
            if (kind, text) in self.list_entities() and (newest := self.find_newest(kind, text))
        ]
        children = [one.at for one in self.stored if one.kind != ROOT and one.application == text]
        if children and (ROOT, text) not in self.list_entities():
            by_id.insert(
                0, ReferenceResult(ROOT, text, None, max(children), frozenset(), frozenset())
            )
        names, carriers = defaultdict(set), defaultdict(set)  # by id of the application
        for entity in self.list_entities():
            for name in BUSINESS_KEYS.get(entity[0], {}):
                if any(text in _list_key_texts(one, name) for one in self.list_versions(*entity)):
                    last = self.find_newest(*entity)
                    names[last.application or last.id].add(name)
                    carriers[last.application or last.id].add(entity)
        by_key = []
        for id, theirs in carriers.items():
            own = self.find_newest(ROOT, id) if (ROOT, id) in self.list_entities() else None
            moment = own.at if own else max(self.find_newest(*each).at for each in theirs)
            by_key.append(
                ReferenceResult(ROOT, id, own, moment, frozenset(names[id]), frozenset(theirs))
            )
        by_key.sort(key=lambda each: each.id)
        by_key.sort(key=lambda each: each.moment, reverse=True)
        ids = {each.id for each in by_id if each.kind == ROOT}
        return by_id + [each for each in by_key if each.id not in ids]

    def is_touched(self, path: Path, one: StoredVersion) -> bool:
        """Whether a version changed what a path without `*` selects."""
        previous = self.find_previous(one)
        return previous is not None and values.is_different(path, previous.data, one.data)

    def list_field_values(
        self, kind: str, id: str, path: Path
    ) -> list[tuple[Value, StoredVersion, datetime | None]]:
        """The values that a field had, newest first: value, who set it, until when."""
        found: list[tuple[Value, StoredVersion, datetime | None]] = []
        until = None
        for one in self.list_chain(kind, id):
            if values.is_different(path, self.find_previous_snapshot(one), one.data):
                value = next(iter(values.select(path, one.data)), ABSENT)
                found.append((value, one, until))
                until = one.at
        return found


def _list_key_texts(one: StoredVersion, name: str) -> set[str]:
    """The texts by which the values of a business key are found; some values have none."""
    found = [values.find_at_pointer(place, one.data) for place in BUSINESS_KEYS[one.kind][name]]
    texts = [value.text if isinstance(value, values.ExactNumber) else value for value in found]
    return {t for t in texts if isinstance(t, str) and 0 < len(t) <= 100 and "\0" not in t}


def _key(one: StoredVersion) -> tuple[int, datetime]:
    return one.version, one.at
