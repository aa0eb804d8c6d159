"""Which versions share their number with another one of the same entity."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime

from history.entities import Entity
from history.timeline import homes
from history.timeline.statements import sql
from history.timeline.versions import Version

# Entity, id and number of a version.
Numbered = tuple[Entity, str, int]

_TWICE = """
    SELECT id, version, array_agg(updated_at ORDER BY updated_at) FROM {table}
    WHERE id = ANY(%s) {within} AND version = ANY(%s) GROUP BY id, version HAVING count(*) > 1
"""
# A version that a child has in two applications is one.
_SEVERAL = """
    SELECT id, version, array_agg(DISTINCT updated_at ORDER BY updated_at) FROM {table}
    WHERE id = ANY(%s) {within} AND version = ANY(%s)
    GROUP BY id, version HAVING count(DISTINCT updated_at) > 1
"""


def given_twice(
    versions: Iterable[Version], *, whole: bool
) -> Mapping[Numbered, tuple[datetime, ...]]:
    """Those numbers of these versions that a producer gave more than once, with the times of all
    versions that have them, the oldest first. whole: these are all versions; otherwise one query
    for each kind."""
    if whole:
        return _among(versions)
    ids: defaultdict[Entity, set[str]] = defaultdict(set)
    numbers: defaultdict[Entity, set[int]] = defaultdict(set)
    for version in versions:
        ids[version.entity].add(version.id)
        numbers[version.entity].add(version.version)
    found: dict[Numbered, tuple[datetime, ...]] = {}
    for entity in ids:
        where = homes.within(entity, ids[entity])
        text = sql(_SEVERAL if where.several else _TWICE, entity, within=where.text)
        values = [sorted(ids[entity]), *where.values, sorted(numbers[entity])]
        found |= {
            (entity, id, number): tuple(times)
            for id, number, times in homes.fetch(where, text, values)
        }
    return found


def _among(versions: Iterable[Version]) -> Mapping[Numbered, tuple[datetime, ...]]:
    times: defaultdict[Numbered, list[datetime]] = defaultdict(list)
    for each in versions:
        times[each.entity, each.id, each.version].append(each.updated_at)
    return {number: tuple(sorted(found)) for number, found in times.items() if len(found) > 1}
