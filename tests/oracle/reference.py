"""The reference: computes what each API call must answer, from a list of all versions."""

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
# The pointers at which the snapshots of each kind have their business keys.
BUSINESS_KEYS: dict[str, dict[str, tuple[str, ...]]] = {
    ROOT: {"number": ("/number",), **_REALTY},
    "participant-role": {"clientId": ("/clientId",)},
    "realty-info": _REALTY,
}


@dataclass(frozen=True)
class ReferenceResult:
    """One result of a search."""

    kind: str
    id: str
    newest: StoredVersion | None  # None for an application with stored children only
    moment: datetime  # of the last known change
    names: frozenset[str]  # of the business keys that match
    carriers: frozenset[tuple[str, str]]  # the documents that have such a business key


@dataclass(frozen=True)
class StoredVersion:
    """One version, read back from the database."""

    kind: str
    id: str
    version: int
    moment: datetime
    type: str
    author: str | None
    client: str
    application: str | None
    data: Value = field(compare=False)  # the snapshot, as values.parse_json returns it

    @property
    def entity(self) -> tuple[str, str]:
        return self.kind, self.id

    @property
    def key(self) -> tuple[int, datetime]:
        return self.version, self.moment


@dataclass(frozen=True)
class ReferenceFilters:
    since: datetime | None = None
    until: datetime | None = None
    author: str | None = None
    client: str | None = None
    type: str | None = None

    def is_selected(self, version: StoredVersion) -> bool:
        return (
            (self.since is None or self.since <= version.moment)
            and (self.until is None or version.moment < self.until)
            and self.author in (None, version.author)
            and self.client in (None, version.client)
            and self.type in (None, version.type)
        )


class ReferenceStore:
    """All versions of a history, and what the API must answer about them."""

    def __init__(self, stored: Sequence[StoredVersion]) -> None:
        self.stored = list(stored)

    def list_entities(self) -> list[tuple[str, str]]:
        return sorted({version.entity for version in self.stored})

    def list_versions(self, kind: str, id: str) -> list[StoredVersion]:
        """Return the versions of one document, ordered by number and then by moment."""
        return sorted(
            (version for version in self.stored if version.entity == (kind, id)),
            key=_get_version_key,
        )

    def find_previous(self, version: StoredVersion) -> StoredVersion | None:
        """Return the version with the nearest lower number, or None.

        If several versions have that lower number, return the latest of them that is not later than
        `version`. If all of them are later, return the oldest of them.
        """
        lower = [
            candidate
            for candidate in self.list_versions(*version.entity)
            if candidate.version < version.version
        ]
        nearest = [candidate for candidate in lower if candidate.version == lower[-1].version]
        not_later = [candidate for candidate in nearest if candidate.moment <= version.moment]
        return not_later[-1] if not_later else nearest[0] if nearest else None

    def find_previous_snapshot(self, version: StoredVersion) -> Value:
        """Return the snapshot of the previous version, or ABSENT if there is no such version."""
        previous = self.find_previous(version)
        return previous.data if previous else ABSENT

    def find_missing(self, version: StoredVersion) -> list[int]:
        previous = self.find_previous(version)
        return list(range(previous.version + 1, version.version)) if previous else []

    def find_missing_after(self, newest: StoredVersion) -> list[int]:
        """Return the missing numbers between a version and the next one of its document."""
        above = [
            version.version
            for version in self.list_versions(newest.kind, newest.id)
            if version.version > newest.version
        ]
        return list(range(newest.version + 1, min(above))) if above else []

    def find_newest(self, kind: str, id: str) -> StoredVersion:
        return self.list_versions(kind, id)[-1]

    def list_chain(self, kind: str, id: str) -> Iterator[StoredVersion]:
        """Yield the newest version, its previous version, the previous of that, and so on."""
        version: StoredVersion | None = self.find_newest(kind, id)
        while version is not None:
            yield version
            version = self.find_previous(version)

    def list_timeline(
        self, kind: str, id: str, filters: ReferenceFilters, sort: str, order: str
    ) -> list[StoredVersion]:
        sort_key: Callable[[StoredVersion], tuple[object, ...]] = (
            _get_version_key
            if sort == "version"
            else lambda version: (version.moment, version.version)
        )
        versions = [
            version for version in self.list_versions(kind, id) if filters.is_selected(version)
        ]
        return sorted(versions, key=sort_key, reverse=order == "desc")

    def list_application(
        self, id: str, filters: ReferenceFilters, order: str
    ) -> list[StoredVersion]:
        versions = [
            version
            for version in self.stored
            if (version.id if version.kind == ROOT else version.application) == id
            and filters.is_selected(version)
        ]
        return sorted(
            versions,
            key=lambda version: (
                version.moment,
                KINDS.index(version.kind),
                version.id,
                version.version,
            ),
            reverse=order == "desc",
        )

    def find_at(self, kind: str, id: str, moment: datetime) -> StoredVersion | None:
        """Return the version that was current at a moment, or None."""
        versions = [version for version in self.list_versions(kind, id) if version.moment <= moment]
        return versions[-1] if versions else None

    def find_application_at(self, id: str, moment: datetime) -> list[StoredVersion]:
        """Return the versions of an application and its children that were current at a moment.

        A document counts as a child if its version of that moment names the application.
        """
        versions = []
        for kind, part in sorted(self.list_entities(), key=lambda e: (KINDS.index(e[0]), e[1])):
            version = self.find_at(kind, part, moment)
            if version and (part == id if kind == ROOT else version.application == id):
                versions.append(version)
        return versions

    def search(self, text: str) -> list[ReferenceResult]:
        """Return the documents with this id, then the applications with this business key.

        The documents come in the order of their kinds. An application is also found by its id if
        only its children are stored. The applications come in the order of their last change.
        """
        by_id = [
            ReferenceResult(kind, text, newest, newest.moment, frozenset(), frozenset())
            for kind in KINDS
            if (kind, text) in self.list_entities() and (newest := self.find_newest(kind, text))
        ]
        children = [
            version.moment
            for version in self.stored
            if version.kind != ROOT and version.application == text
        ]
        if children and (ROOT, text) not in self.list_entities():
            by_id.insert(
                0, ReferenceResult(ROOT, text, None, max(children), frozenset(), frozenset())
            )
        # Both by the id of the application.
        names, carriers = defaultdict(set), defaultdict(set)
        for entity in self.list_entities():
            for name in BUSINESS_KEYS.get(entity[0], {}):
                if any(
                    text in _list_key_texts(version, name)
                    for version in self.list_versions(*entity)
                ):
                    last = self.find_newest(*entity)
                    names[last.application or last.id].add(name)
                    carriers[last.application or last.id].add(entity)
        by_key = []
        for id, documents in carriers.items():
            root_version = (
                self.find_newest(ROOT, id) if (ROOT, id) in self.list_entities() else None
            )
            moment = (
                root_version.moment
                if root_version
                else max(self.find_newest(*carrier).moment for carrier in documents)
            )
            by_key.append(
                ReferenceResult(
                    ROOT, id, root_version, moment, frozenset(names[id]), frozenset(documents)
                )
            )
        by_key.sort(key=lambda result: result.id)
        by_key.sort(key=lambda result: result.moment, reverse=True)
        ids = {result.id for result in by_id if result.kind == ROOT}
        return by_id + [result for result in by_key if result.id not in ids]

    def is_touched(self, path: Path, version: StoredVersion) -> bool:
        """Return whether a version changed a value that `path` selects. The path has no `*`."""
        previous = self.find_previous(version)
        return previous is not None and values.is_different(path, previous.data, version.data)

    def list_field_values(
        self, kind: str, id: str, path: Path
    ) -> list[tuple[Value, StoredVersion, datetime | None]]:
        """Return the values that a field had, the newest first.

        Each value comes with the version that set the value, and the moment until which the field
        had the value.
        """
        field_values: list[tuple[Value, StoredVersion, datetime | None]] = []
        until = None
        for version in self.list_chain(kind, id):
            if values.is_different(path, self.find_previous_snapshot(version), version.data):
                value = next(iter(values.select(path, version.data)), ABSENT)
                field_values.append((value, version, until))
                until = version.moment
        return field_values


def _list_key_texts(version: StoredVersion, name: str) -> set[str]:
    """Return the texts by which search finds the business key `name` of a version.

    Search finds only texts and numbers of at most 100 characters, not empty and without NUL.
    """
    raw_values = [
        values.find_at_pointer(pointer, version.data)
        for pointer in BUSINESS_KEYS[version.kind][name]
    ]
    texts = [value.text if isinstance(value, values.ExactNumber) else value for value in raw_values]
    return {t for t in texts if isinstance(t, str) and 0 < len(t) <= 100 and "\0" not in t}


def _get_version_key(version: StoredVersion) -> tuple[int, datetime]:
    return version.version, version.moment
