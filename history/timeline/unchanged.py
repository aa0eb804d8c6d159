"""Finds the versions that changed nothing of some parts of a snapshot, without reading them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from psycopg.types.numeric import Int4

from history import masking
from history.database import prepared
from history.diff.blame import Steps
from history.documents.exactjson import Json, dumps, loads
from history.entities import Entity
from history.requests import deadline
from history.timeline.reading import Reader
from history.timeline.row import Key, Keys
from history.timeline.sources.statements import sql

# As PostgreSQL holds it, not as it is shown: it is compared with others there.
_STORED = """
    SELECT data::text FROM {table}
    WHERE id = %s AND updated_at = %s AND version = %s LIMIT 1
"""
# Backwards in time, partition by partition, as far as the first one that differs. An object
# contains another one if it has the same values at its keys; a list contains more than equal ones,
# so lists are compared as a whole, with every digit of their numbers. No block is looked into.
_DIFFERENT = """
    SELECT version, updated_at FROM {table}
    WHERE id = %s AND updated_at <= %s AND (updated_at, version) < (%s, %s)
      AND (packed IS NOT NULL OR NOT (data @> %s::jsonb AND (%s OR NOT EXISTS (
          SELECT FROM unnest(%s::text[], %s::text[]) AS list(path, value)
          WHERE (data #> path::text[])::text IS DISTINCT FROM value::jsonb::text))))
    ORDER BY updated_at DESC, version DESC LIMIT 1
"""


class Unchanged:
    """The versions of one entity that may be skipped. places: gives the parts of the version read
    last that count; set it before the first skip."""

    def __init__(self, reader: Reader, entity: Entity, id: str) -> None:
        self._reader = reader
        self._entity = entity
        self._id = id
        self._seen = entity.parent is None  # whether the applications of all versions are noted
        self.places: Callable[[], Iterable[Steps]] = tuple

    def skip(self, keys: Keys, last: Key) -> Key | None:
        """The lowest version below `last` down to which nothing of these parts changes; None where
        that is not known, or the next one does. history.timeline.neighbours.Skip."""
        if self._reader.others or not keys.ordered:
            return None
        try:
            # The token of a masked part tells more of its values apart than the parts do.
            exact = masking.mask_of(self._reader.viewer, self._entity) is not None
            parts = _Parts(self._stored(last), self.places(), exact=exact)
        except (ValueError, LookupError, TypeError):
            return None  # Python cannot hold it, or shows it in another form
        if not self._seen:
            # These versions are not shown, but that they have the same values is.
            owners = self._reader.confine(self._entity, [self._id])
            self._reader.viewer.look.read(owners)
            self._seen = True
        different = self._different(last, parts)
        found = keys.lowest if different is None else keys.above(different)
        return found if found is not None and found < last else None

    def _stored(self, key: Key) -> Json:
        statement = sql(_STORED, self._entity)
        place = [self._id, key.updated_at, Int4(key.version)]
        [[text]] = prepared.fetch(statement, place)
        return loads(text)

    def _different(self, last: Key, parts: _Parts) -> Key | None:
        deadline.check()
        place = [self._id, last.updated_at, last.updated_at, Int4(last.version)]
        lists = list(parts.lists.values())
        values = [dumps(parts.within).decode(), not lists, list(parts.lists), lists]
        statement = sql(_DIFFERENT, self._entity)
        found = prepared.fetch(statement, [*place, *values])
        return Key(*found[0]) if found else None


class _Parts:
    """Parts of a document. within: the document with nothing else. lists: lists in it and empty
    objects, as JSON, by their path as an array of PostgreSQL. exact: every part is there."""

    def __init__(self, document: Json, places: Iterable[Steps], *, exact: bool) -> None:
        self._exact = exact
        self.within: dict[str, Json] = {}
        self.lists: dict[str, str] = {}
        for steps in places:
            self._add(document, steps)

    def _add(self, document: Json, steps: Steps) -> None:
        value: Any = document
        to_list = next((at for at, step in enumerate(steps) if type(step) is int), len(steps))
        names = cast(tuple[str, ...], steps[:to_list])
        for name in names:
            value = value[name]
        self._take(names, value)

    def _take(self, names: tuple[str, ...], value: Json) -> None:
        if isinstance(value, dict) and value and not self._exact:
            for name, inner in value.items():
                self._take((*names, name), inner)
            return
        # Also above a list: a path of PostgreSQL leads through an item 0 as through a key "0".
        above: Any = self.within
        for name in names[:-1]:
            above = above.setdefault(name, {})
        if self._exact or isinstance(value, list | dict):
            self.lists[_array(names)] = dumps(value).decode()
        elif names:
            above[names[-1]] = value
        else:
            raise ValueError("the document is no object")


def _array(names: tuple[str, ...]) -> str:
    escaped = (name.replace("\\", r"\\").replace('"', r"\"") for name in names)
    return "{" + ",".join(f'"{name}"' for name in escaped) + "}"
