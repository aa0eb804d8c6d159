"""One masked value of a version, for one who may see it."""

from collections.abc import Callable

from django.utils.translation import gettext as _

from history import masking
from history.diff.leaves import leaves
from history.documents.exactjson import Json
from history.documents.json_pointer import segments
from history.entities import Entity
from history.timeline import compose, single
from history.timeline.compose import Version
from history.timeline.query import Include, NoVersionError
from history.timeline.reading import Reader


def masked_values(entity: Entity, data: Json) -> dict[str, str]:
    """The masked parts of a snapshot as the reader gets it, in document order: their tokens by
    RFC 6901 pointer."""
    return {
        leaf.path: leaf.value
        for leaf in leaves(data, compose.identity(entity))
        if isinstance(leaf.value, str) and masking.is_token(leaf.value)
    }


def unmask(reader: Reader, shown: Version, path: str, record: Callable[[], None]) -> Json:
    """The value of one masked part of a version that the reader was shown. `record` is called
    before it is read; what it raises prevents the reader.

    Raises NoVersionError where the version has no masked part at this pointer,
    OlderThanRetentionError.
    """
    if path not in masked_values(shown.entity, shown.data):
        text = _("version {n} of {kind} {id} has no masked value there")
        name = text.format(n=shown.version, kind=shown.entity.name, id=shown.id)
        raise NoVersionError(name)
    record()
    names = (shown.entity, shown.id, shown.version, frozenset[Include](), shown.updated_at)
    value = single.version(reader.in_clear(), *names).data
    for name in segments(path):
        value = value[name] if isinstance(value, dict) else value[int(name)]  # type: ignore[index]
    return value
