"""What a source is: eight questions about keys and rows, of one kind or one application.

A source knows nothing of readers, masks, budgets, HTTP or other sources. Modules fulfil this
protocol as they are: `tables`, and `merged`, which is the tables with the old service.

To add one: write a module with these functions, give it its place in `merged`, add it to the
fixture of tests/db/test_sources.py and to the contract "One gate" in pyproject.toml.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from history.entities import Entity
from history.timeline.query import Filters, Order, Query
from history.timeline.row import IdKey, Key, Position, Read, VersionRow


class Source(Protocol):
    """No answer is masked, and no question refused."""

    def page(self, query: Query, after: Key, limit: int, /) -> Read:
        """Up to `limit` versions after the key (FIRST or LAST to begin with), in display order;
        fewer where their documents are larger than READ_BYTES. The path filter is not applied."""

    def keys(self, entity: Entity, ids: Collection[str], /) -> dict[str, list[Key]]:
        """The keys of all versions of these entities, ascending. One that has none is not there."""

    def first_bodies(
        self, entity: Entity, wanted: Sequence[IdKey], /
    ) -> tuple[dict[IdKey, VersionRow], Sequence[IdKey]]:
        """The first of the versions with these ids and keys, as far as they are (still) there: at
        least one, and as many as READ_BYTES allow. The second part: those not read yet."""

    def exists(self, entity: Entity, id: str, /) -> bool:
        """Whether there is any version of this entity."""

    def owners(self, entity: Entity, ids: Collection[str], /) -> dict[str, set[str]]:
        """The applications that any version of each of these belongs to; none where the kind
        stands alone."""

    def belongs(self, entity: Entity, application: str, /) -> bool:
        """Whether any version of this kind is the application or a child of it."""

    def children(self, entity: Entity, application: str, /) -> list[str]:
        """The ids of the children of one kind that name the application in any version."""

    def of_application(
        self,
        application: str,
        filters: Filters,
        order: Order,
        after: Position | None,
        limit: int,
        /,
    ) -> list[tuple[Entity, str, Key]]:
        """Up to `limit` versions of an application and its children after a place (None to begin
        with), in display order: kind, id, key."""
