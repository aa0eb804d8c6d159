"""The masked values of one version: where they are, and one of them unmasked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext as _

from history import masking
from history.diff.leaves import leaves
from history.diff.path import split
from history.entities import Entity
from history.exactjson import Json
from history.timeline import compose, single
from history.timeline.query import NoVersionError


@dataclass(frozen=True, slots=True)
class MaskedValue:
    """One masked part of a version. path: its RFC 6901 pointer; masked: its token."""

    path: str
    masked: str


def masked_values(entity: Entity, data: Json) -> list[MaskedValue]:
    """The masked parts of a snapshot as the present reader gets it, in document order."""
    found = leaves(data, compose.identity(entity))
    return [
        MaskedValue(leaf.path, leaf.value)
        for leaf in found
        if isinstance(leaf.value, str) and masking.is_token(leaf.value)
    ]


def unmask(
    entity: Entity,
    id: str,
    number: int,
    path: str,
    record: Callable[[str], None],
    made: datetime | None = None,
) -> tuple[MaskedValue, Json]:
    """One masked part of a version, named as in single.version, and its value. `record` is called
    with the pointer before the value is read; what it raises prevents the reading.

    Raises NoVersionError where the version has no masked part at this pointer,
    OlderThanRetentionError.
    """
    data = single.version(entity, id, number, frozenset(), made).data
    hidden = next((each for each in masked_values(entity, data) if each.path == path), None)
    if hidden is None:
        text = _("version {n} of {kind} {id} has no masked value there")
        raise NoVersionError(text.format(n=number, kind=entity.name, id=id))
    record(path)
    with masking.in_clear():
        clear = single.version(entity, id, number, frozenset(), made).data
    return hidden, _at(clear, path)


def _at(document: Json, pointer: str) -> Json:
    """The value at a pointer that leads somewhere."""
    value = document
    for segment in split(pointer):
        if isinstance(value, dict):
            value = value[segment.replace("~1", "/").replace("~0", "~")]
        elif isinstance(value, list):
            value = value[int(segment)]
    return value
