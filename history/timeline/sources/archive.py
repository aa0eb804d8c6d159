"""The archived versions of an entity, in the form of the store."""

from history.documents.jsonb import shortened
from history.entities import Entity
from history.timeline.row import VersionRow


class ArchiveUnavailableError(RuntimeError):
    """The archive does not answer, or a file of it is missing or broken."""


def versions(url: str, entity: Entity, id: str) -> list[VersionRow]:
    """All of them; those of a restored day too. Raises ArchiveUnavailableError."""
    from history.archive import read  # with pyarrow, which most processes never need
    from history.archive.store import ArchiveError, Store

    try:
        found = read.versions(Store(url), entity, id)
    except (OSError, ArchiveError) as error:
        raise ArchiveUnavailableError(str(error)) from error
    return [
        VersionRow(
            version=each.version,
            updated_at=each.updated_at,
            type=each.type,
            client_id=each.client_id,
            author=each.author,
            product_instance_id=each.product_instance_id,
            data=shortened(each.data),
            id=each.id,
        )
        for each in found
    ]
