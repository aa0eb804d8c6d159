"""Masks documents where they leave the store: nothing is computed from a marked value."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from history import labels
from history.diff import parse
from history.documents.exactjson import Json, dumps, loads_shallow
from history.entities import ENTITIES, Entity
from history.masking import token
from history.masking.marks import DEEP, Marks
from history.masking.reader import Viewer

# Tokens of texts that a mask remembers: most versions of a document have what the one before had.
REMEMBERED = 1_000


@dataclass(frozen=True, slots=True)
class Mask:
    """Masks the documents of one kind of entity. paths: the marked ones, sorted."""

    entity: str
    paths: tuple[str, ...]
    _tokens: dict[tuple[bytes, str, str], str] = field(default_factory=dict, compare=False)

    @property
    def marks(self) -> Marks:
        return _marks(self.paths)

    def __call__(self, id: str, text: bytes) -> bytes:
        """The JSON text of a document with a token in the place of each marked part. A document
        that Python cannot hold becomes one token. id: of the entity."""
        key = token.document_key(self.entity, id)

        def replace(mark: str, value: Json) -> str:
            if type(value) is not str:
                return token.token(key, mark, value)
            place = (key, mark, value)
            if (found := self._tokens.get(place)) is None:
                if len(self._tokens) >= REMEMBERED:
                    self._tokens.clear()
                found = self._tokens[place] = token.token(key, mark, value)
            return found

        try:
            document = loads_shallow(text)
        except ValueError:
            return dumps(token.token(key, DEEP, text.decode()))
        return dumps(self.marks.apply(document, replace))


def mask_of(viewer: Viewer, entity: Entity) -> Mask | None:
    """How to mask this kind for this viewer; None where nothing is to be masked."""
    found = stored_mask(entity)
    return None if found is None or viewer.clear else found


def stored_mask(entity: Entity) -> Mask | None:
    """How to mask this kind, whoever reads; None where the catalogue marks nothing of it."""
    paths = labels.catalogue().sensitive(entity.name)
    return Mask(entity.name, paths) if paths else None


@lru_cache(maxsize=64)
def _marks(paths: tuple[str, ...]) -> Marks:
    return Marks(paths)


def searchable_keys(viewer: Viewer) -> list[str]:
    """The business keys that the viewer may search by, as "entity key". A key is left out
    if any of its places is marked, or is inside a marked part."""
    return [
        f"{entity.name} {name}"
        for entity in ENTITIES
        for name in dict.fromkeys(name for name, _ in entity.search)
        if not any(_marked(viewer, entity, place) for key, place in entity.search if key == name)
    ]


def leads_into_mark(viewer: Viewer, kinds: Iterable[Entity], path: str) -> bool:
    """Whether this path leads into a part that the viewer gets as one token. path: a
    pointer or key path. The answer does not depend on any document."""
    masks = (mask_of(viewer, entity) for entity in kinds)
    return any(mask is not None and mask.marks.cover(parse(path)) for mask in masks)


def _marked(viewer: Viewer, entity: Entity, place: str) -> bool:
    mask = mask_of(viewer, entity)
    return mask is not None and mask.marks.cover(parse(f"{place}/-"))
