"""Finds the version that last changed each leaf of the newest snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from history.diff.align import SimilarItemMatcher, align_lists
from history.diff.equality import is_equal_number, is_identical
from history.diff.identity import ListIdentity
from history.diff.leaves import choose_pointer_limit
from history.diff.path import escape_key
from history.documents.exactjson import Json

V = TypeVar("V")  # the type by which the caller names a version


@dataclass(slots=True)
class _UnblamedPart:
    """A value in the newest snapshot. At least one leaf in it has no blamed version yet."""

    path: str  # the pointer of the value in the newest snapshot
    # The values inside with leaves that have no blamed version yet, by key or index in the snapshot
    # that the walk has reached. None as long as nothing in the value has changed.
    parts: dict[str | int, _UnblamedPart] | None = None


class BlameWalk(Generic[V]):
    """A walk from the newest snapshot to older ones, to find the version that changed a leaf last.

    Moving a list item does not count as a change of its leaves.

    Args:
        report: Called with the pointer of each leaf and the version that last changed it.
    """

    def __init__(
        self, newest: Json, identity: ListIdentity, report: Callable[[str, V], object]
    ) -> None:
        self._root: _UnblamedPart | None = _UnblamedPart("")
        self._longest = choose_pointer_limit(newest, identity)
        self._reached = newest
        self._identity = identity
        self._report = report
        self._matcher = SimilarItemMatcher()

    @property
    def is_done(self) -> bool:
        """Whether every leaf has been reported."""
        return self._root is None

    def blame_version(self, older: Json, version: V) -> None:
        """Blame `version` for the leaves that it changed, except leaves that are blamed already.

        Args:
            older: The snapshot before `version`.
        """
        self._matcher = SimilarItemMatcher()
        if self._root is not None and not self._walk(self._root, self._reached, older, version):
            self._root = None
        self._reached = older

    def blame_rest(self, version: V) -> None:
        """Blame `version`, the oldest one, for all remaining leaves."""
        if self._root is not None:
            self._blame_part(self._root, self._reached, version)
            self._root = None

    def _walk(self, part: _UnblamedPart, new: Json, old: Json, version: V) -> bool:
        """Blame `version` for the changed leaves of a part.

        Returns:
            Whether the part still has leaves that are not blamed.
        """
        if is_identical(old, new) or is_equal_number(old, new):
            return True
        if len(part.path) > self._longest:
            self._blame_part(part, new, version)
            return False
        if type(new) is dict and type(old) is dict and new:
            origins: dict[str | int, str | int] = {key: key for key in new if key in old}
        elif type(new) is list and type(old) is list and new:
            origin_indexes = align_lists(
                old, new, self._identity.get_keys_at(part.path), self._matcher
            ).source
            origins = {index: origin for index, origin in enumerate(origin_indexes) if origin >= 0}
        else:
            self._blame_part(part, new, version)
            return False
        if part.parts is None:
            part.parts = {
                key: _UnblamedPart(path) for key, path, _ in _generate_parts(part.path, new)
            }
        unblamed_parts: dict[str | int, _UnblamedPart] = {}
        for key, inner in part.parts.items():
            if key not in origins:
                self._blame_part(inner, _get_item(new, key), version)
                continue
            new_value, old_value = _get_item(new, key), _get_item(old, origins[key])
            if new_value is old_value or self._walk(inner, new_value, old_value, version):
                unblamed_parts[origins[key]] = inner
        part.parts = unblamed_parts
        return bool(unblamed_parts)

    def _blame_part(self, part: _UnblamedPart, value: Json, version: V) -> None:
        if part.parts is None:
            for path, _ in _generate_leaves(value, part.path, self._longest):
                self._report(path, version)
            return
        for key, inner in part.parts.items():
            self._blame_part(inner, _get_item(value, key), version)


def _generate_leaves(value: Json, path: str, longest: int) -> Iterator[tuple[str, Json]]:
    """Generate the pointer and value of every leaf, in document order.

    Args:
        longest: An object or list is one leaf if its pointer has more characters than this.
    """
    if type(value) not in (dict, list) or not value or len(path) > longest:
        yield path, value
        return
    for _, below, inner in _generate_parts(path, value):
        yield from _generate_leaves(inner, below, longest)


def _generate_parts(path: str, value: Json) -> Iterator[tuple[str | int, str, Json]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key, f"{path}/{escape_key(key)}", inner
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield index, f"{path}/{index}", inner


def _get_item(value: Any, key: str | int) -> Json:
    item: Json = value[key]
    return item
