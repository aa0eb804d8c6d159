"""Masks snapshots: replaces each marked value by a token.

history.policy.viewer_policy masks every snapshot before a viewer gets it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from hashlib import blake2b

import msgspec
from django.conf import settings

from history.diff import parse_path
from history.documents.exactjson import Json, dump_canonically, dumps, loads_shallow
from history.kinds.entities import ENTITIES, EntityKind
from history.policy.masking.marks import ANY_SEGMENTS, MarkedPaths
from history.policy.masking.viewer import Viewer
from history.store.catalogue import labels

# A mask remembers this many tokens of texts, because most texts are the same in the next version.
MAX_REMEMBERED_TOKENS = 1_000


@dataclass(frozen=True, slots=True)
class KindMask:
    """Masks the snapshots of one kind."""

    entity: str  # the name of the kind
    paths: tuple[str, ...]  # the marked paths, sorted
    _tokens: dict[tuple[bytes, str, str], str] = field(default_factory=dict, compare=False)

    @property
    def marks(self) -> MarkedPaths:
        return _make_marked_paths(self.paths)

    def __call__(self, id: str, text: bytes) -> bytes:
        """Return a snapshot of the document `id` with each marked part replaced by a token.

        A snapshot that Python cannot parse, for example because a number is too large for it, is
        replaced by a single token.
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
            snapshot = loads_shallow(text)
        except ValueError:
            return dumps(make_token(key, ANY_SEGMENTS, text.decode()))
        return dumps(self.marks.mask_snapshot(snapshot, replace))


def get_viewer_mask(viewer: Viewer, entity: EntityKind) -> KindMask | None:
    """Return the mask of a kind for this viewer, or None if the viewer sees all its values."""
    mask = load_stored_mask(entity)
    return None if mask is None or viewer.sees_marked else mask


def load_stored_mask(entity: EntityKind) -> KindMask | None:
    """Return the mask of a kind, or None if the catalogue marks no field of this kind."""
    paths = labels.get_catalogue().list_sensitive_paths(entity.name)
    return KindMask(entity.name, paths) if paths else None


@lru_cache(maxsize=64)
def _make_marked_paths(paths: tuple[str, ...]) -> MarkedPaths:
    return MarkedPaths(paths)


def list_searchable_keys(viewer: Viewer) -> list[str]:
    """Return the business keys by which the viewer may search.

    A business key is returned as a text: the name of the kind, a space, and the name of the key. A
    key is left out if the value at one of its pointers is masked for the viewer.
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
    """Return whether a pointer or key path leads into a part that is masked for this viewer.

    The viewer gets such a part as one token. The result depends only on the marked paths, and not
    on the content of snapshots.
    """
    masks = (get_viewer_mask(viewer, entity) for entity in kinds)
    return any(mask is not None and mask.marks.is_below_mark(parse_path(path)) for mask in masks)


def _is_marked(viewer: Viewer, entity: EntityKind, pointer: str) -> bool:
    mask = get_viewer_mask(viewer, entity)
    return mask is not None and mask.marks.is_below_mark(parse_path(f"{pointer}/-"))


# The functions below make the tokens that replace masked values.

MASKED_PREFIX = "masked:"
TOKEN_DIGITS = 16
SHOWN_DIGITS = 6
_TOKEN = re.compile(MASKED_PREFIX + "[0-9a-f]{16}")


def derive_document_key(entity: str, id: str) -> bytes:
    """Derive the key for the tokens of one document.

    Each document has a key of its own, so equal values in two documents get different tokens.
    """
    installation = _derive_installation_key(settings.SECRET_KEY)
    return blake2b(f"{entity}\0{id}".encode(), key=installation, digest_size=32).digest()


def make_token(key: bytes, mark: str, value: Json) -> str:
    """Return the token of a value. All tokens have the same length.

    1, 1.0 and 1.00 have the same token; 1 and "1" have different tokens.

    Args:
        key: The key of the document.
        mark: The marked path. Equal values of two fields get different tokens.
    """
    text = b"%b\0%b" % (mark.encode(), dump_canonically(_normalize_numbers(value)))
    return MASKED_PREFIX + blake2b(text, key=key, digest_size=TOKEN_DIGITS // 2).hexdigest()


def is_token(value: object) -> bool:
    return isinstance(value, str) and _TOKEN.fullmatch(value) is not None


def shorten_token(text: str) -> str:
    """Return the short form of a token for screens, or any other text unchanged."""
    if not is_token(text):
        return text
    return f"•••• {text[len(MASKED_PREFIX) : len(MASKED_PREFIX) + SHOWN_DIGITS]}"


@lru_cache(maxsize=4)
def _derive_installation_key(secret: str) -> bytes:
    # BLAKE2 takes a key of at most 64 bytes, so the secret is hashed first.
    return blake2b(blake2b(secret.encode()).digest(), person=b"annals.masking").digest()


def _normalize_numbers(value: Json) -> object:
    """Return the value with each number written so that 1, 1.0 and 1e0 are the same."""
    if isinstance(value, dict):
        return {key: _normalize_numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_normalize_numbers(inner) for inner in value]
    if isinstance(value, Decimal) or type(value) is int:
        return _normalize_number(Decimal(value))
    return value


def _normalize_number(value: Decimal) -> msgspec.Raw:
    # Decimal.normalize would round to the precision of the context.
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits))
    significant_digits = text.rstrip("0")
    if not significant_digits:
        return msgspec.Raw(b"0")
    power = int(exponent) + len(text) - len(significant_digits)
    return msgspec.Raw(f"{'-' * sign}{significant_digits.lstrip('0')}e{power}".encode())
