"""Business keys by which entities are found: taken out of a snapshot while it is being stored.

Which ones there are stands with each kind of entity (Entity.search). Pure; ingest calls it.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

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
        members = _decoder(entity).decode(record.data)
    except (msgspec.MsgspecError, RecursionError):
        return []  # null for DELETE
    product = record.product_instance_id or record.id
    found = []
    for name, attribute, rest in _places(entity):
        value = _value(getattr(members, attribute), rest)
        if value is not None and 0 < len(value) <= SEARCH_VALUE_LENGTH:
            found.append(FoundKey(value, name, entity.name, record.id, product))
    return found


def _value(raw: msgspec.Raw | None, rest: list[str]) -> str | None:
    if raw is None:
        return None
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return None  # text that is no Unicode: PostgreSQL will refuse the snapshot
    for segment in rest:
        value = value.get(segment) if isinstance(value, dict) else None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and "\0" not in value else None


def upsert_rows(records: list[Record]) -> list[tuple[FoundKey, str]]:
    """The distinct keys of a batch, each with its newest UTC day (ISO), in the order to insert."""
    newest: dict[FoundKey, int] = {}
    for record in records:
        for key in found_keys(record):
            newest[key] = max(record.updated_at, newest.get(key, record.updated_at))
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
def _decoder(entity: Entity) -> msgspec.json.Decoder[Any]:
    """A decoder that keeps the members in which keys lie as raw text and skips all others."""
    members = dict.fromkeys(_segments(pointer)[0] for _, pointer in entity.search)
    names = {f"member{number}": member for number, member in enumerate(members)}
    fields: list[Any] = [(name, msgspec.Raw | None, None) for name in names]
    return msgspec.json.Decoder(msgspec.defstruct("Members", fields, rename=names))


@cache
def _places(entity: Entity) -> list[tuple[str, str, list[str]]]:
    """Each key's name, the decoder's attribute that it lies in, and the way on from there."""
    kind = _decoder(entity).type
    attributes = {field.encode_name: field.name for field in msgspec.structs.fields(kind)}
    places = []
    for name, pointer in entity.search:
        first, *rest = _segments(pointer)
        places.append((name, attributes[first], rest))
    return places


def _segments(pointer: str) -> list[str]:
    parts = pointer.split("/")[1:]
    return [part.replace("~1", "/").replace("~0", "~") for part in parts]
