"""Which questions the present reader may not ask, because the answer would tell a marked value."""

from __future__ import annotations

from collections.abc import Iterable

from history.diff import parse
from history.entities import ENTITIES, Entity
from history.masking.documents import mask_of


def searchable_keys() -> list[str]:
    """The business keys that the present reader may search by, as "entity key". A key is left out
    if any of its places is marked, or is inside a marked part."""
    return [
        f"{entity.name} {name}"
        for entity in ENTITIES
        for name in dict.fromkeys(name for name, _ in entity.search)
        if not any(_marked(entity, place) for key, place in entity.search if key == name)
    ]


def leads_into_mark(kinds: Iterable[Entity], path: str) -> bool:
    """Whether this path leads into a part that the present reader gets as one token. path: a
    pointer or key path. The answer does not depend on any document."""
    return any(mask is not None and mask.marks.cover(parse(path)) for mask in map(mask_of, kinds))


def _marked(entity: Entity, place: str) -> bool:
    mask = mask_of(entity)
    return mask is not None and mask.marks.cover(parse(f"{place}/-"))
