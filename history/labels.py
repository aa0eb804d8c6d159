"""The labels of the fields of a snapshot: a catalogue in the database."""

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

from history.entities import BY_NAME, ENTITIES
from history.failure.complaints import of_declaration
from history.kinds.declared import problems_of_mark
from history.kinds.kind import DeclaredLabel
from history.models import FieldLabel

SHIPPED = Path(__file__).with_name("labels.json")
FRESH_SECONDS = 5.0
REMEMBERED = 10_000  # places: the same few are asked for again and again
ANY = "*"

# Sent in the transaction of `annals labels load`, with `entity`, `path`, and whether the field was
# marked as sensitive `before`, and is `after`.
mark_changed: Final = Signal()


@dataclass(frozen=True, slots=True)
class Label:
    """A field's name in both languages and how to read its values. kind: one of FieldLabel.Kind.
    words: for "enum", a value's names by language, {"NEW": {"ru": "Новая", "en": "New"}}."""

    russian: str
    english: str
    kind: str
    words: Mapping[str, Mapping[str, str]]

    @property
    def technical(self) -> bool:
        return self.kind == FieldLabel.Kind.TECHNICAL

    @property
    def names(self) -> tuple[str, str]:
        """In both languages, whatever is a capital letter."""
        return self.russian.casefold(), self.english.casefold()

    def text(self, language: str) -> str:
        """The name in this language, else in the other one. language: ru, en-gb."""
        if language.startswith("ru"):
            return self.russian or self.english
        return self.english or self.russian


@dataclass(slots=True)
class _Place:
    """A node of the tree of path patterns."""

    label: Label | None = None
    below: dict[str, _Place] = field(default_factory=dict)


class Catalogue:
    """All labels, to be looked up by path. An exact segment has priority over `*`, nearer the root
    first; a label for one kind of entity has priority over one for every kind. What the file of
    kinds marks as sensitive is marked, whatever the entries say."""

    def __init__(self, entries: Iterable[FieldLabel] = ()) -> None:
        self._trees: dict[str, _Place] = {}
        # Not of a method: a catalogue that is replaced would wait for a collection of cycles.
        self.find: Final = lru_cache(REMEMBERED)(partial(_find, self._trees))
        self._sensitive = {
            kind.name: {each.path for each in kind.labels if each.sensitive} for kind in ENTITIES
        }
        self._named: list[tuple[str, str, Label]] = []
        for entry in entries:
            if entry.sensitive:
                self._sensitive.setdefault(entry.entity, set()).add(entry.path)
            place = self._trees.setdefault(entry.entity, _Place())
            for segment in entry.path.split("/")[1:]:
                place = place.below.setdefault(segment, _Place())
            place.label = Label(entry.russian, entry.english, entry.kind, entry.words)
            self._named.append((entry.entity, entry.path, place.label))

    def sensitive(self, entity: str) -> tuple[str, ...]:
        """The paths that are marked sensitive for this kind or for every kind, sorted."""
        of_all, own = self._sensitive.get("", set()), self._sensitive.get(entity, set())
        return tuple(sorted(of_all | own))

    def named(self, text: str, entities: Collection[str]) -> dict[str, Label]:
        """The paths of the fields of these kinds with this name in either language, each with its
        label; where none has exactly this name, those with the text in theirs, technical ones left
        out. In the order of the paths, whatever is a capital letter."""
        wanted = text.strip().casefold()
        its = (each for each in self._named if not each[0] or each[0] in entities)
        theirs = sorted(((path, label) for _, path, label in its), key=lambda pair: pair[0])
        exact = {p: each for p, each in theirs if wanted in each.names}
        if exact:
            return exact
        plain = ((p, each) for p, each in theirs if not each.technical)
        return {p: each for p, each in plain if any(wanted in n for n in each.names)}


def _find(trees: Mapping[str, _Place], entity: str, path: str) -> Label | None:
    """The label of the value at an RFC 6901 pointer (or key path) of a kind's snapshots."""
    segments = path.split("/")[1:]
    for tree in (trees.get(entity), trees.get("")):
        label = _descend(tree, segments) if tree else None
        if label:
            return label
    return None


def _descend(place: _Place, segments: list[str]) -> Label | None:
    if not segments:
        return place.label
    for step in (segments[0], ANY):
        below = place.below.get(step)
        label = _descend(below, segments[1:]) if below else None
        if label:
            return label
    return None


class _Kept:
    """The catalogue as read last. Edits by other processes show after FRESH_SECONDS."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read_at = -FRESH_SECONDS
        self._catalogue = Catalogue()

    def get(self) -> Catalogue:
        if time.monotonic() - self._read_at >= FRESH_SECONDS:
            with self._lock:
                if time.monotonic() - self._read_at >= FRESH_SECONDS:
                    self._catalogue = Catalogue(FieldLabel.objects.all())
                    self._read_at = time.monotonic()
        return self._catalogue

    def forget(self) -> None:
        self._read_at = -FRESH_SECONDS


_kept = _Kept()


def catalogue() -> Catalogue:
    """The labels as they are now, or as they were up to FRESH_SECONDS ago."""
    return _kept.get()


def forget(**_: object) -> None:
    """Read the catalogue again at the next use. Also a signal receiver."""
    _kept.forget()


class LabelsFileError(ValueError):
    """A file of labels that cannot be loaded; the message says where it is wrong."""


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    path: str
    russian: str
    english: str = ""
    entity: str = ""
    kind: str = FieldLabel.Kind.TEXT
    words: dict[str, dict[str, str]] = {}
    sensitive: bool | msgspec.UnsetType = msgspec.UNSET


def read(text: bytes) -> list[tuple[FieldLabel, bool]]:
    """The labels in a file, each with whether the file says if it is sensitive: a JSON list of
    objects with path, russian, english, entity, kind, words, sensitive. Raises LabelsFileError."""
    try:
        entries = msgspec.json.decode(text.removeprefix(BOM_UTF8), type=list[_Entry])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise LabelsFileError(of_declaration(error, "JSON")) from None
    found: dict[tuple[str, str], tuple[FieldLabel, bool]] = {}
    for number, entry in enumerate(entries, 1):
        marked = entry.sensitive is True
        for problem in problems(entry.entity, entry.path, entry.kind, marked):
            raise LabelsFileError(f"entry {number} ({entry.path}): {problem}")
        if (entry.entity, entry.path) in found:
            raise LabelsFileError(f"entry {number} ({entry.path}): is in the file twice")
        values: dict[str, Any] = msgspec.structs.asdict(entry)
        marks = entry.sensitive is not msgspec.UNSET
        values["sensitive"] = bool(marks and entry.sensitive)
        found[entry.entity, entry.path] = FieldLabel(**values), marks
    return list(found.values())


def problems(entity: str, path: str, kind: str, sensitive: bool) -> list[str]:
    """What is wrong with a label, in sentences; the admin's form uses this too."""
    found = []
    if entity and entity not in BY_NAME:
        found.append(f"there is no kind of entity {entity}")
    if not path.startswith("/"):
        found.append("a path begins with a slash")
    if sensitive:
        found += problems_of_mark(path)
    if kind not in FieldLabel.Kind.values:
        found.append(f"kind must be one of {', '.join(FieldLabel.Kind.values)}")
    return found


def load(text: bytes) -> int:
    """Add or change the labels of a file, all or nothing; the others stay. How many there were. An
    entry without `sensitive` leaves the mark of a field as it is."""
    entries = read(text)
    with transaction.atomic():
        _tell(entries)
        for marks in (False, True):
            FieldLabel.objects.bulk_create(
                [label for label, has_mark in entries if has_mark is marks],
                update_conflicts=True,
                unique_fields=["entity", "path"],
                update_fields=["russian", "english", "kind", "words", *["sensitive"] * marks],
                batch_size=500,
            )
    forget()
    return len(entries)


def _tell(entries: Iterable[tuple[FieldLabel, bool]]) -> None:
    """Send mark_changed for each mark that these entries set or remove."""
    known = FieldLabel.objects.select_for_update()
    marks = {(each.entity, each.path): each.sensitive for each in known}
    for label, has_mark in entries:
        before = marks.get((label.entity, label.path), False)
        if marks and has_mark and label.sensitive is not before:
            mark_changed.send(
                sender=load,
                entity=label.entity,
                path=label.path,
                before=before,
                after=label.sensitive,
            )


def load_shipped(**_: object) -> None:
    """Fill an empty catalogue with the labels that come with Annals."""
    if not FieldLabel.objects.exists():
        entries: list[dict[str, Any]] = msgspec.json.decode(SHIPPED.read_bytes())
        known = [each for each in entries if each.get("entity", "") in {"", *BY_NAME}]
        load(msgspec.json.encode(known))
    declared = [_declared(kind.name, each) for kind in ENTITIES for each in kind.labels]
    if declared:
        FieldLabel.objects.bulk_create(declared, ignore_conflicts=True)
        forget()


def _declared(kind: str, label: DeclaredLabel) -> FieldLabel:
    return FieldLabel(
        entity=kind,
        path=label.path,
        russian=label.ru or label.en or "",
        english=label.en or "",
        kind=label.kind,
        words=label.words,
        sensitive=label.sensitive,
    )
