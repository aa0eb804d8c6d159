"""Finds the version that last changed each leaf of the newest snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from history.diff.align import Similarity, align
from history.diff.equal import equal_numbers, identical
from history.diff.identity import Identity
from history.diff.leaves import longest_pointer
from history.diff.path import escape
from history.documents.exactjson import Json

V = TypeVar("V")


@dataclass(slots=True)
class _Part:
    """A part of the newest snapshot with leaves that are not blamed yet. path: its pointer there.
    parts: its remaining parts by key or index in the snapshot reached so far; None as long as
    nothing in it has changed."""

    path: str
    parts: dict[str | int, _Part] | None = None


class BlameWalk(Generic[V]):
    """Walks from the newest snapshot to older ones and reports who changed each leaf last; the move
    of an item does not change its leaves. `report` gets a leaf's pointer and the version that is
    blamed."""

    def __init__(
        self, newest: Json, identity: Identity, report: Callable[[str, V], object]
    ) -> None:
        self._root: _Part | None = _Part("")
        self._longest = longest_pointer(newest, identity)
        self._reached = newest
        self._identity = identity
        self._report = report
        self._similarity = Similarity()

    @property
    def done(self) -> bool:
        """Whether every leaf has been reported."""
        return self._root is None

    def step(self, older: Json, version: V) -> None:
        """Go back by one version: blame `version` for every leaf that `older`, the one before,
        does not have."""
        self._similarity = Similarity()
        if self._root is not None and not self._walk(self._root, self._reached, older, version):
            self._root = None
        self._reached = older

    def finish(self, version: V) -> None:
        """Blame the oldest version for the rest."""
        if self._root is not None:
            self._resolve(self._root, self._reached, version)
            self._root = None

    def _walk(self, part: _Part, new: Json, old: Json, version: V) -> bool:
        """Whether any leaf of the part is older than `version`."""
        if identical(old, new) or equal_numbers(old, new):
            return True
        if len(part.path) > self._longest:
            self._resolve(part, new, version)
            return False
        if type(new) is dict and type(old) is dict and new:
            origins: dict[str | int, str | int] = {key: key for key in new if key in old}
        elif type(new) is list and type(old) is list and new:
            places = align(old, new, self._identity.at(part.path), self._similarity).source
            origins = {index: origin for index, origin in enumerate(places) if origin >= 0}
        else:
            self._resolve(part, new, version)
            return False
        if part.parts is None:
            part.parts = {key: _Part(path) for key, path, _ in _inside(part.path, new)}
        left: dict[str | int, _Part] = {}
        for key, inner in part.parts.items():
            if key not in origins:
                self._resolve(inner, _item(new, key), version)
                continue
            now, was = _item(new, key), _item(old, origins[key])
            if now is was or self._walk(inner, now, was, version):
                left[origins[key]] = inner
        part.parts = left
        return bool(left)

    def _resolve(self, part: _Part, value: Json, version: V) -> None:
        if part.parts is None:
            for path, _ in _leaves(value, part.path, self._longest):
                self._report(path, version)
            return
        for key, inner in part.parts.items():
            self._resolve(inner, _item(value, key), version)


def _leaves(value: Json, path: str, longest: int) -> Iterator[tuple[str, Json]]:
    """Pointer and value of every leaf, in document order."""
    if type(value) not in (dict, list) or not value or len(path) > longest:
        yield path, value
        return
    for _, below, inner in _inside(path, value):
        yield from _leaves(inner, below, longest)


def _inside(path: str, value: Json) -> Iterator[tuple[str | int, str, Json]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key, f"{path}/{escape(key)}", inner
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield index, f"{path}/{index}", inner


def _item(value: Any, key: str | int) -> Json:
    found: Json = value[key]
    return found
