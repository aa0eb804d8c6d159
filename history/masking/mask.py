"""How the documents of a kind are masked: a token in the place of each marked value. For a reader
history.timeline.gate does it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from hashlib import blake2b

import msgspec
from django.conf import settings

from history import labels
from history.diff import parse
from history.documents.exactjson import Json, canonical, dumps, loads_shallow
from history.entities import ENTITIES, Entity
from history.masking.marks import DEEP, Marks
from history.masking.viewer import Viewer

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
        key = document_key(self.entity, id)

        def replace(mark: str, value: Json) -> str:
            if type(value) is not str:
                return token(key, mark, value)
            place = (key, mark, value)
            if (found := self._tokens.get(place)) is None:
                if len(self._tokens) >= REMEMBERED:
                    self._tokens.clear()
                found = self._tokens[place] = token(key, mark, value)
            return found

        try:
            document = loads_shallow(text)
        except ValueError:
            return dumps(token(key, DEEP, text.decode()))
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


# Tokens.

PREFIX = "masked:"
DIGITS = 16
SHOWN_DIGITS = 6
_TOKEN = re.compile(PREFIX + "[0-9a-f]{16}")


def document_key(entity: str, id: str) -> bytes:
    """The key of one document: equal values of two documents have different tokens."""
    installation = _installation_key(settings.SECRET_KEY)
    return blake2b(f"{entity}\0{id}".encode(), key=installation, digest_size=32).digest()


def token(key: bytes, mark: str, value: Json) -> str:
    """The token of a value, all of one length; 1, 1.0 and 1.00 have the same, 1 and "1" do not.
    key: of its document. mark: the marked path, so that two fields cannot be compared either."""
    text = b"%b\0%b" % (mark.encode(), canonical(_plain(value)))
    return PREFIX + blake2b(text, key=key, digest_size=DIGITS // 2).hexdigest()


def is_token(value: object) -> bool:
    return isinstance(value, str) and _TOKEN.fullmatch(value) is not None


def shown(text: str) -> str:
    """A token as screens show it; any other text as it is."""
    if not is_token(text):
        return text
    return f"•••• {text[len(PREFIX) : len(PREFIX) + SHOWN_DIGITS]}"


@lru_cache(maxsize=4)
def _installation_key(secret: str) -> bytes:
    # Hashed first: the key of BLAKE2 has 64 bytes at most.
    return blake2b(blake2b(secret.encode()).digest(), person=b"annals.masking").digest()


def _plain(value: Json) -> object:
    """The value with each number in the one form that all notations of it share."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, Decimal) or type(value) is int:
        return _number(Decimal(value))
    return value


def _number(value: Decimal) -> msgspec.Raw:
    # Not Decimal.normalize: it rounds to the precision of the context.
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits))
    plain = text.rstrip("0")
    if not plain:
        return msgspec.Raw(b"0")
    power = int(exponent) + len(text) - len(plain)
    return msgspec.Raw(f"{'-' * sign}{plain.lstrip('0')}e{power}".encode())
