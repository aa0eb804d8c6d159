"""Masks the documents of a kind: puts a token in the place of each marked value.

history.policy.viewer_policy calls this for every viewer.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from hashlib import blake2b

import msgspec
from django.conf import settings

from history.catalogue import labels
from history.diff import parse_path
from history.documents.exactjson import Json, canonical, dumps, loads_shallow
from history.kinds.entities import ENTITIES, EntityKind
from history.policy.masking.marks import ANY_SEGMENTS, MarkedPaths
from history.policy.masking.viewer import Viewer

# Tokens of texts that a mask remembers: most versions of a document have what the one before had.
MAX_REMEMBERED_TOKENS = 1_000


@dataclass(frozen=True, slots=True)
class KindMask:
    """Masks the documents of one kind of entity. paths: the marked ones, sorted."""

    entity: str
    paths: tuple[str, ...]
    _tokens: dict[tuple[bytes, str, str], str] = field(default_factory=dict, compare=False)

    @property
    def marks(self) -> MarkedPaths:
        return _make_marked_paths(self.paths)

    def __call__(self, id: str, text: bytes) -> bytes:
        """Return the JSON text of a document with a token in the place of each marked part.

        A document that Python cannot hold becomes one token. `id` is that of the entity.
        """
        key = derive_document_key(self.entity, id)

        def replace(mark: str, value: Json) -> str:
            if type(value) is not str:
                return make_token(key, mark, value)
            cache_key = (key, mark, value)
            if (masked_token := self._tokens.get(cache_key)) is None:
                if len(self._tokens) >= MAX_REMEMBERED_TOKENS:
                    self._tokens.clear()
                masked_token = self._tokens[cache_key] = make_token(key, mark, value)
            return masked_token

        try:
            document = loads_shallow(text)
        except ValueError:
            return dumps(make_token(key, ANY_SEGMENTS, text.decode()))
        return dumps(self.marks.mask_document(document, replace))


def get_viewer_mask(viewer: Viewer, entity: EntityKind) -> KindMask | None:
    """Return the mask of a kind for this viewer; None if nothing is to be masked."""
    mask = load_stored_mask(entity)
    return None if mask is None or viewer.sees_marked else mask


def load_stored_mask(entity: EntityKind) -> KindMask | None:
    """Return the mask of a kind, whoever reads; None if the catalogue marks nothing in it."""
    paths = labels.get_catalogue().list_sensitive_paths(entity.name)
    return KindMask(entity.name, paths) if paths else None


@lru_cache(maxsize=64)
def _make_marked_paths(paths: tuple[str, ...]) -> MarkedPaths:
    return MarkedPaths(paths)


def list_searchable_keys(viewer: Viewer) -> list[str]:
    """Return the business keys that the viewer may search by, as "kind key".

    A key is left out if any of its places is marked, or is inside a marked part.
    """
    return [
        f"{entity.name} {name}"
        for entity in ENTITIES
        for name in dict.fromkeys(name for name, _ in entity.search)
        if not any(
            _is_marked(viewer, entity, pointer) for key, pointer in entity.search if key == name
        )
    ]


def is_path_into_mark(viewer: Viewer, kinds: Iterable[EntityKind], path: str) -> bool:
    """Return whether a pointer or key path leads into a part that the viewer gets as one token.

    The answer does not depend on any document.
    """
    masks = (get_viewer_mask(viewer, entity) for entity in kinds)
    return any(mask is not None and mask.marks.cover(parse_path(path)) for mask in masks)


def _is_marked(viewer: Viewer, entity: EntityKind, pointer: str) -> bool:
    mask = get_viewer_mask(viewer, entity)
    return mask is not None and mask.marks.cover(parse_path(f"{pointer}/-"))


# Tokens.

MASKED_PREFIX = "masked:"
TOKEN_DIGITS = 16
SHOWN_DIGITS = 6
_TOKEN = re.compile(MASKED_PREFIX + "[0-9a-f]{16}")


def derive_document_key(entity: str, id: str) -> bytes:
    """Derive the key of one document, so that equal values in two documents have different
    tokens.
    """
    installation = _derive_installation_key(settings.SECRET_KEY)
    return blake2b(f"{entity}\0{id}".encode(), key=installation, digest_size=32).digest()


def make_token(key: bytes, mark: str, value: Json) -> str:
    """Return the token of a value. All tokens have one length.

    1, 1.0 and 1.00 have the same token; 1 and "1" do not.

    Args:
        key: Of the document.
        mark: The marked path, so that two fields cannot be compared either.
    """
    text = b"%b\0%b" % (mark.encode(), canonical(_normalize_numbers(value)))
    return MASKED_PREFIX + blake2b(text, key=key, digest_size=TOKEN_DIGITS // 2).hexdigest()


def is_token(value: object) -> bool:
    return isinstance(value, str) and _TOKEN.fullmatch(value) is not None


def shorten_token(text: str) -> str:
    """Return the short form of a token for screens; any other text stays as it is."""
    if not is_token(text):
        return text
    return f"•••• {text[len(MASKED_PREFIX) : len(MASKED_PREFIX) + SHOWN_DIGITS]}"


@lru_cache(maxsize=4)
def _derive_installation_key(secret: str) -> bytes:
    # Hashed first: the key of BLAKE2 has 64 bytes at most.
    return blake2b(blake2b(secret.encode()).digest(), person=b"annals.masking").digest()


def _normalize_numbers(value: Json) -> object:
    """Return the value with each number in the one form that all its notations share."""
    if isinstance(value, dict):
        return {key: _normalize_numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_normalize_numbers(inner) for inner in value]
    if isinstance(value, Decimal) or type(value) is int:
        return _normalize_number(Decimal(value))
    return value


def _normalize_number(value: Decimal) -> msgspec.Raw:
    # Not Decimal.normalize: it rounds to the precision of the context.
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits))
    significant_digits = text.rstrip("0")
    if not significant_digits:
        return msgspec.Raw(b"0")
    power = int(exponent) + len(text) - len(significant_digits)
    return msgspec.Raw(f"{'-' * sign}{significant_digits.lstrip('0')}e{power}".encode())
