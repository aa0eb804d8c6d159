"""Which version a version is compared with, and which versions between them are missing."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from datetime import datetime

from history.entities import Entity
from history.timeline import rows
from history.timeline.rows import Key, Row


class Keys:
    """All keys of one entity that the store has, ascending."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self._keys = sorted(keys)

    @property
    def newest(self) -> Key | None:
        return self._keys[-1] if self._keys else None

    @property
    def lowest(self) -> Key | None:
        return self._keys[0] if self._keys else None

    def previous(self, key: Key) -> Key | None:
        """The key with the nearest lower version number; None if there is none.

        Where a producer gave that number twice: the latest one that is not younger than `key`,
        else the oldest.
        """
        below = bisect_left(self._keys, key.version, key=_version)
        if below == 0:
            return None
        number = self._keys[below - 1].version
        start = bisect_left(self._keys, number, key=_version)
        twins = [twin.updated_at for twin in self._keys[start:below]]
        return self._keys[start + max(0, bisect_right(twins, key.updated_at) - 1)]

    def of_version(self, version: int) -> Sequence[Key]:
        """Every key with this version number: none, one, or the twins."""
        start = bisect_left(self._keys, version, key=_version)
        return self._keys[start : bisect_right(self._keys, version, key=_version)]


def _version(key: Key) -> int:
    return key.version


def in_page(page: Collection[Row]) -> dict[Key, Row]:
    """The previous versions that a page without gaps in its order proves by itself.

    A version N-1 that is not younger than N, the latest such one, must be right: every other
    candidate would stand between the two, and nothing between them was left out.
    """
    by_version: dict[int, list[Row]] = {}
    for row in page:
        by_version.setdefault(row.version, []).append(row)
    found: dict[Key, Row] = {}
    for row in page:
        older = [
            other
            for other in by_version.get(row.version - 1, ())
            if other.updated_at <= row.updated_at
        ]
        if older:
            found[row.key] = max(older, key=_moment)
    return found


def _moment(row: Row) -> datetime:
    return row.updated_at


def find(
    entity: Entity,
    id: str,
    wanted: Sequence[Row],
    page: Sequence[Row],
    *,
    gapless: bool,
    whole: bool,
) -> dict[Key, Row | None]:
    """The previous version of each wanted row; None where the store has no lower one.

    page: rows at hand, in display order. gapless: nothing was left out between them. whole: they
    are all that the store has of the entity. Two more queries at most.
    """
    found: dict[Key, Row | None] = {row.key: None for row in wanted if row.version == 0}
    proven = in_page(page) if gapless else {}
    found.update((row.key, proven[row.key]) for row in wanted if row.key in proven)
    rest = [row.key for row in wanted if row.key not in found]
    if not rest:
        return found
    known = [row.key for row in page] if whole else rows.keys(entity, [id]).get(id, [])
    keys = Keys(known)
    previous = {key: keys.previous(key) for key in rest}
    at_hand = {row.key: row for row in page}
    unread = {key for key in previous.values() if key is not None and key not in at_hand}
    for (_, key), row in rows.bodies(entity, [(id, key) for key in unread]).items():
        at_hand[key] = row
    found.update((key, at_hand.get(before) if before else None) for key, before in previous.items())
    return found
