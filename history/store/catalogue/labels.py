"""The catalogue of labels: the names of fields, and which fields are marked as sensitive.

The labels are rows of the table of FieldLabel.
"""

from __future__ import annotations

import threading
import time
from codecs import BOM_UTF8
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

import msgspec
from django.db import transaction
from django.dispatch import Signal

from history.common.explained_errors import explain_declaration_error
from history.kinds.entities import BY_NAME, ENTITIES
from history.kinds.kind import DeclaredLabel
from history.kinds.kinds_file import find_mark_problems
from history.models import FieldLabel, LabelKind

SHIPPED_FILE = Path(__file__).with_name("labels.json")
FRESH_SECONDS = 5.0
MAX_REMEMBERED_PATHS = 10_000  # most look-ups are for the same few paths
ANY_SEGMENT = "*"

# Sent in the transaction of `annals labels load`. Arguments: `entity`, `path`, and whether the
# field was marked as sensitive `before` and `after` the load.
mark_changed: Final = Signal()


@dataclass(frozen=True, slots=True)
class FieldText:
    """A field's name in both languages, and how its values are shown."""

    russian: str
    english: str
    kind: str  # one of LabelKind
    # for kind "enum": by value, its name in each language: {"NEW": {"ru": "Новая", "en": "New"}}
    words: Mapping[str, Mapping[str, str]]

    @property
    def technical(self) -> bool:
        return self.kind == LabelKind.TECHNICAL

    @property
    def names(self) -> tuple[str, str]:
        """The field's names in both languages, case-folded."""
        return self.russian.casefold(), self.english.casefold()

    def get_text(self, language: str) -> str:
        """Return the name in a language (ru, en-gb), or the other name if this one is empty."""
        if language.startswith("ru"):
            return self.russian or self.english
        return self.english or self.russian


@dataclass(slots=True)
class _PatternNode:
    """A node in the tree of the paths that have a label. Each segment is one level down."""

    label: FieldText | None = None
    below: dict[str, _PatternNode] = field(default_factory=dict)


class LabelCatalogue:
    """All labels, to be looked up by path.

    A label for one kind has priority over a label for every kind. If the paths of several labels
    match, they are compared segment by segment from the root: an exact segment wins over `*`.

    A field is marked as sensitive if its label in the database or in the file of kinds says so.
    """

    def __init__(self, entries: Iterable[FieldLabel] = ()) -> None:
        self._trees: dict[str, _PatternNode] = {}
        # Returns the label of a path, see _find_label. Not a method: its cache would refer to the
        # catalogue, and keep a replaced catalogue in memory for long.
        self.find: Final = lru_cache(MAX_REMEMBERED_PATHS)(partial(_find_label, self._trees))
        self._sensitive = {
            kind.name: {
                declared_label.path for declared_label in kind.labels if declared_label.sensitive
            }
            for kind in ENTITIES
        }
        self._named: list[tuple[str, str, FieldText]] = []
        for entry in entries:
            if entry.sensitive:
                self._sensitive.setdefault(entry.entity, set()).add(entry.path)
            node = self._trees.setdefault(entry.entity, _PatternNode())
            for segment in entry.path.split("/")[1:]:
                node = node.below.setdefault(segment, _PatternNode())
            node.label = FieldText(entry.russian, entry.english, entry.kind, entry.words)
            self._named.append((entry.entity, entry.path, node.label))

    def list_sensitive_paths(self, entity: str) -> tuple[str, ...]:
        """Return the paths that are marked sensitive for this kind or for every kind, sorted."""
        paths_of_all, paths_of_kind = (
            self._sensitive.get("", set()),
            self._sensitive.get(entity, set()),
        )
        return tuple(sorted(paths_of_all | paths_of_kind))

    def find_by_name(self, text: str, entities: Collection[str]) -> dict[str, FieldText]:
        """Return the labels with the name `text` in either language, by path, in path order.

        If no label has exactly this name, return the labels with names that contain `text`, except
        those of technical fields. Upper and lower case are the same.

        Args:
            entities: The names of the kinds. Labels for every kind are found, too.
        """
        search_text = text.strip().casefold()
        entries = (entry for entry in self._named if not entry[0] or entry[0] in entities)
        labels = sorted(((path, label) for _, path, label in entries), key=lambda pair: pair[0])
        exact = {p: label for p, label in labels if search_text in label.names}
        if exact:
            return exact
        readable = ((p, label) for p, label in labels if not label.technical)
        return {p: label for p, label in readable if any(search_text in n for n in label.names)}


def _find_label(trees: Mapping[str, _PatternNode], entity: str, path: str) -> FieldText | None:
    """Return the label of a field in the snapshots of a kind, or None."""
    segments = path.split("/")[1:]
    for tree in (trees.get(entity), trees.get("")):
        label = _descend(tree, segments) if tree else None
        if label:
            return label
    return None


def _descend(node: _PatternNode, segments: list[str]) -> FieldText | None:
    if not segments:
        return node.label
    for step in (segments[0], ANY_SEGMENT):
        below = node.below.get(step)
        label = _descend(below, segments[1:]) if below else None
        if label:
            return label
    return None


class _CatalogueCache:
    """The catalogue of this process. It is read again after FRESH_SECONDS: others may edit it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read_at = -FRESH_SECONDS
        self._catalogue = LabelCatalogue()

    def get(self) -> LabelCatalogue:
        if time.monotonic() - self._read_at >= FRESH_SECONDS:
            with self._lock:
                if time.monotonic() - self._read_at >= FRESH_SECONDS:
                    self._catalogue = LabelCatalogue(FieldLabel.objects.all())
                    self._read_at = time.monotonic()
        return self._catalogue

    def forget(self) -> None:
        self._read_at = -FRESH_SECONDS


_cache = _CatalogueCache()


def get_catalogue() -> LabelCatalogue:
    """Return the catalogue, read at most FRESH_SECONDS ago."""
    return _cache.get()


def forget_catalogue(**_: object) -> None:
    """Forget the cached catalogue, so that get_catalogue reads it again. A signal receiver."""
    _cache.forget()


class LabelsFileError(ValueError):
    """Raised if a file of labels cannot be loaded. The message says where and why."""


class _FileEntry(msgspec.Struct, forbid_unknown_fields=True):
    path: str
    russian: str
    english: str = ""
    entity: str = ""
    kind: str = LabelKind.TEXT
    words: dict[str, dict[str, str]] = {}
    sensitive: bool | msgspec.UnsetType = msgspec.UNSET


def parse_labels_file(text: bytes) -> list[tuple[FieldLabel, bool]]:
    """Parse a file of labels.

    Args:
        text: A JSON list of objects with path, russian, english, entity, kind, words, sensitive.

    Returns:
        Each label, and whether its object has the member `sensitive`.

    Raises:
        LabelsFileError: The file is not such a list, or has a mistake.
    """
    try:
        entries = msgspec.json.decode(text.removeprefix(BOM_UTF8), type=list[_FileEntry])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise LabelsFileError(explain_declaration_error(error, "JSON")) from None
    labels: dict[tuple[str, str], tuple[FieldLabel, bool]] = {}
    for number, entry in enumerate(entries, 1):
        marked = entry.sensitive is True
        for problem in find_label_problems(entry.entity, entry.path, entry.kind, marked):
            raise LabelsFileError(f"entry {number} ({entry.path}): {problem}")
        if (entry.entity, entry.path) in labels:
            raise LabelsFileError(f"entry {number}: {entry.path} is in the file twice")
        values: dict[str, Any] = msgspec.structs.asdict(entry)
        marks = entry.sensitive is not msgspec.UNSET
        values["sensitive"] = bool(marks and entry.sensitive)
        labels[entry.entity, entry.path] = FieldLabel(**values), marks
    return list(labels.values())


def find_label_problems(entity: str, path: str, kind: str, sensitive: bool) -> list[str]:
    """Return a sentence for each mistake in a label. The admin's form uses this too."""
    problems = []
    if entity and entity not in BY_NAME:
        problems.append(f"there is no kind of entity {entity}")
    if not path.startswith("/"):
        problems.append("a path begins with a slash")
    if sensitive:
        problems += find_mark_problems(path)
    if kind not in LabelKind.values:
        problems.append(f"kind must be one of {', '.join(LabelKind.values)}")
    return problems


def load_labels(text: bytes) -> int:
    """Add or change the labels of a file, and return how many labels the file has.

    If the file has a mistake, nothing changes. Labels that are not in the file stay. An entry
    without `sensitive` does not change whether the field is marked.
    """
    entries = parse_labels_file(text)
    with transaction.atomic():
        _announce_mark_changes(entries)
        for marks in (False, True):
            FieldLabel.objects.bulk_create(
                [label for label, has_mark in entries if has_mark is marks],
                update_conflicts=True,
                unique_fields=["entity", "path"],
                update_fields=["russian", "english", "kind", "words", *["sensitive"] * marks],
                batch_size=500,
            )
    forget_catalogue()
    return len(entries)


def _announce_mark_changes(entries: Iterable[tuple[FieldLabel, bool]]) -> None:
    """Send mark_changed for each field that these entries mark or unmark.

    The first labels of an empty catalogue are not announced.
    """
    stored_labels = FieldLabel.objects.select_for_update()
    marks = {
        (stored_label.entity, stored_label.path): stored_label.sensitive
        for stored_label in stored_labels
    }
    for label, has_mark in entries:
        before = marks.get((label.entity, label.path), False)
        if marks and has_mark and label.sensitive is not before:
            mark_changed.send(
                sender=load_labels,
                entity=label.entity,
                path=label.path,
                before=before,
                after=label.sensitive,
            )


def load_shipped_labels(**_: object) -> None:
    """Fill an empty catalogue with the labels that come with Annals.

    Also add the labels that the file of kinds declares. A signal receiver.
    """
    if not FieldLabel.objects.exists():
        entries: list[dict[str, Any]] = msgspec.json.decode(SHIPPED_FILE.read_bytes())
        known_entries = [entry for entry in entries if entry.get("entity", "") in {"", *BY_NAME}]
        load_labels(msgspec.json.encode(known_entries))
    declared = [
        _make_declared_label(kind.name, label) for kind in ENTITIES for label in kind.labels
    ]
    if declared:
        FieldLabel.objects.bulk_create(declared, ignore_conflicts=True)
        forget_catalogue()


def _make_declared_label(kind: str, label: DeclaredLabel) -> FieldLabel:
    return FieldLabel(
        entity=kind,
        path=label.path,
        russian=label.ru or label.en or "",
        english=label.en or "",
        kind=label.kind,
        words=label.words,
        sensitive=label.sensitive,
    )
