"""What a source is: seven questions about keys and rows, of one kind or one application.

A source knows nothing of readers, masks, budgets, HTTP or other sources. `tables` is one, and
`merged`, which is the tables with supplements: `old_service` and `archive`. Who adds a source
writes a supplement; docs/structure.md has the steps.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from history.entities import Entity
from history.timeline.query import Filters, Order, Query
from history.timeline.row import Documents, IdKey, Key, Located, Named, Place, Read, VersionRow


class Source(Protocol):
    """No answer is masked, and no question refused."""

    def page(self, query: Query, after: Key, limit: int, /) -> Read:
        """Up to `limit` versions after the key (FIRST or LAST to begin with), in display order;
        fewer where their documents are larger than READ_BYTES. The path filter is not applied."""

    def keys(self, entity: Entity, ids: Collection[str], /) -> dict[str, list[Key]]:
        """The keys of all versions of these entities, ascending. One that has none is not there."""

    def documents(self, wanted: Mapping[Entity, Sequence[IdKey]], /) -> dict[Entity, Documents]:
        """The first versions with these ids and keys, as far as they are (still) there: of each
        kind at least one, and as many as READ_BYTES allow."""

    def newest(
        self, entity: Entity, id: str, below: Sequence[Key], count: int, /
    ) -> tuple[list[Key], dict[IdKey, VersionRow]]:
        """All keys of an entity, ascending, and the documents of its highest versions up to each
        of these numbers and moments, this many of each, as far as one statement may bring them."""

    def owners(self, entity: Entity, ids: Collection[str], /) -> dict[str, set[str]]:
        """The applications that any version of each of these belongs to; none where the kind
        stands alone."""

    def members(self, application: str, /) -> dict[Named, list[Key]]:
        """The application and the children that name it in any version: of each the keys of all
        versions, ascending."""

    def of_application(
        self,
        application: str,
        filters: Filters,
        order: Order,
        after: Place | None,
        limit: int,
        /,
    ) -> tuple[list[Located], dict[Named, list[Key]]]:
        """Up to `limit` versions of an application and its children after a place (None to begin
        with), in display order; and of each entity among them the keys of all versions."""


class Supplement(Protocol):
    """What has versions that the tables lack, all of one document at once, in the form of the
    tables: moments in UTC, documents as history.documents.jsonb.shortened gives them, b"null" for a
    deletion that has none."""

    @property
    def by_number(self) -> bool:
        """Whether a version of the same number is the same one, whatever its time."""

    def rows(
        self, entity: Entity, id: str, owners: Callable[[], Collection[str]], /
    ) -> Mapping[Key, VersionRow]:
        """All versions of an entity, each of a child with its application. owners: gives the
        applications that the tables know for it."""

    def of_application(self, application: str, /) -> Collection[Named]:
        """The entities that name the application in any version, or are the application."""
