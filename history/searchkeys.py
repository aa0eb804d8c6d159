"""Business keys by which entities are found: taken out of a snapshot while it is being stored.

Which ones there are stands with each kind of entity (Entity.search). Pure; ingest calls it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple, get_args

import msgspec

from history.entities import BY_NAME, Entity
from history.record import Record
from history.window import day_of

SEARCH_VALUE_LENGTH = 100


class FoundKey(NamedTuple):
    """A row of the search_key table but for its day. Sortable: writers that insert in order
    do not deadlock."""

    value: str
    name: str
    entity: str
    id: str
    product_instance_id: str


def found_keys(record: Record) -> list[FoundKey]:
    """The business keys in a record's snapshot. Text and whole numbers count; what is missing,
    empty, longer than SEARCH_VALUE_LENGTH or of another type is passed over."""
    entity = BY_NAME[record.entity]
    if not entity.search:
        return []
    try:
        values = _typed(entity).decode(record.data)
    except (msgspec.MsgspecError, RecursionError):
        return _one_by_one(entity, record)
    return _keys(entity, record, [_follow(values, way) for _, way in _ways(entity)])


def _one_by_one(entity: Entity, record: Record) -> list[FoundKey]:
    """The same where something on the way to a key is not of the usual type."""
    try:
        snapshot = msgspec.json.decode(record.data)
    except (msgspec.MsgspecError, RecursionError):
        return []  # text that is no Unicode: PostgreSQL will refuse the snapshot
    found = []
    for _, pointer in entity.search:
        value = snapshot
        for segment in _segments(pointer):
            value = value.get(segment) if isinstance(value, dict) else None
        found.append(value)
    return _keys(entity, record, found)


def _keys(entity: Entity, record: Record, values: list[object]) -> list[FoundKey]:
    product = record.product_instance_id or record.id
    found = []
    for (name, _), value in zip(entity.search, values, strict=True):
        whole = isinstance(value, int) and not isinstance(value, bool)
        text = str(value) if whole or isinstance(value, str) else ""
        if 0 < len(text) <= SEARCH_VALUE_LENGTH and "\0" not in text:
            found.append(FoundKey(text, name, entity.name, record.id, product))
    return found


def upsert_rows(found: Iterable[tuple[list[FoundKey], int]]) -> list[tuple[FoundKey, str]]:
    """The distinct keys of a batch, each with its newest UTC day (ISO), in the order to insert.

    found: the keys of each record with its updated_at.
    """
    newest: dict[FoundKey, int] = {}
    for keys, updated_at in found:
        for key in keys:
            newest[key] = max(updated_at, newest.get(key, updated_at))
    return [(key, day_of(moment).isoformat()) for key, moment in sorted(newest.items())]


# One row for each key; `day` moves forward at most once a day, so that a busy entity costs little.
UPSERT = """
    INSERT INTO search_key (value, name, entity, id, product_instance_id, day)
    SELECT * FROM unnest(%s::varchar[], %s::varchar[], %s::varchar[], %s::varchar[], %s::varchar[],
                         %s::date[])
    ON CONFLICT (value, name, entity, id) DO UPDATE
    SET day = excluded.day, product_instance_id = excluded.product_instance_id
    WHERE search_key.day < excluded.day
"""
EXPIRE = "DELETE FROM search_key WHERE day < %s"


@cache
def _typed(entity: Entity) -> msgspec.json.Decoder[Any]:
    """A decoder of nothing but the keys: everything else is skipped, which is cheap."""
    tree: dict[str, Any] = {}
    for _, pointer in entity.search:
        *way, last = _segments(pointer)
        branch = tree
        for segment in way:
            branch = branch.setdefault(segment, {})
        branch[last] = None
    return msgspec.json.Decoder(_struct(tree))


def _struct(tree: dict[str, Any]) -> Any:
    """A struct of a tree's members, named by their place; a leaf is text, an integer or null."""
    names = {f"member{number}": member for number, member in enumerate(tree)}
    kinds = [
        str | int | None if tree[each] is None else _struct(tree[each]) | None for each in tree
    ]
    fields: list[Any] = [(name, kind, None) for name, kind in zip(names, kinds, strict=True)]
    return msgspec.defstruct("Members", fields, rename=names)


@cache
def _ways(entity: Entity) -> list[tuple[str, list[str]]]:
    """Each key's name, and the struct members that lead to it."""
    ways = []
    for name, pointer in entity.search:
        kind, way = _typed(entity).type, []
        for segment in _segments(pointer):
            field = next(f for f in msgspec.structs.fields(kind) if f.encode_name == segment)
            way.append(field.name)
            kind = next((k for k in get_args(field.type) if hasattr(k, "__struct_fields__")), None)
        ways.append((name, way))
    return ways


def _follow(values: Any, way: list[str]) -> object:
    for name in way:
        if values is None:
            return None
        values = getattr(values, name)
    found: object = values
    return found


def _segments(pointer: str) -> list[str]:
    parts = pointer.split("/")[1:]
    return [part.replace("~1", "/").replace("~0", "~") for part in parts]
