"""Any two versions of an entity compared."""

from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext as _

from history import diff as differ
from history import labels
from history.diff import Operation, changes
from history.entities import Entity
from history.timeline import compose
from history.timeline.query import OlderThanRetentionError
from history.timeline.reading import Reader
from history.timeline.single import key_of, known
from history.timeline.versions import LabelledChange, Version


@dataclass(frozen=True, slots=True)
class Comparison:
    """The difference of two versions. before may be the younger one."""

    before: Version
    after: Version
    patch: list[Operation]
    changes: tuple[LabelledChange, ...]


def compare(
    reader: Reader,
    entity: Entity,
    id: str,
    before: int,
    after: int,
    before_made: datetime | None = None,
    after_made: datetime | None = None,
) -> Comparison:
    """Two versions of one entity, each named and refused as by single.version()."""
    wanted = ((before, before_made), (after, after_made))
    document = known(reader, entity, id, *wanted)
    keys = [key_of(document, number, made) for number, made in wanted]
    found = document.pairs(*keys)
    if len(found) < len(keys):
        raise OlderThanRetentionError(_("retention has just removed one of the versions"))
    old, new = compose.versions(reader, found, frozenset())
    both = differ.compare(old.data, new.data, compose.identity(entity))
    labelled = compose.labelled(entity, both.changes, labels.catalogue())
    return Comparison(old, new, both.patch, labelled)


def differences(before: Version, after: Version) -> tuple[LabelledChange, ...]:
    """What differs in the documents of two versions of one entity, as the reader has them."""
    found = changes(before.data, after.data, compose.identity(after.entity))
    return compose.labelled(after.entity, found, labels.catalogue())
