"""In which applications the versions of a child are.

Where the tables are distributed by application (docs/citus.md), a statement about a child names its
application: then it is the work of one shard. A plain installation asks nothing here.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from history.database.distributed import apart
from history.distribution import APPLICATION
from history.entities import CHILDREN, Entity
from history.timeline.sources import statements

# Kind and id.
Named: TypeAlias = tuple[str, str]


class Within(NamedTuple):
    """A condition on the column by which a table is distributed, and its values. homes: the
    applications that it names; None in a plain installation."""

    text: str = ""
    values: tuple[object, ...] = ()
    homes: frozenset[str] | None = None

    @property
    def several(self) -> bool:
        """Whether rows may come from several shards, or from none."""
        return self.homes is not None and len(self.homes) != 1


def fetch(where: Within, statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
    """The rows of a statement with this condition. One that names no application is not run: Citus
    would ask every shard."""
    if where.homes is not None and not where.homes:
        return []
    return statements.fetch(statement, values)


def condition(name: str, values: Collection[str]) -> Within:
    """That the column has one of these values."""
    homes = frozenset(values)
    if len(homes) == 1:
        return Within(f"AND {name} = %s", tuple(homes), homes)
    return Within(f"AND {name} = ANY(%s)", (sorted(homes),), homes)


def column(entity: Entity) -> str:
    """The column by which a kind's table is distributed: it names the application."""
    return "id" if entity.parent is None else APPLICATION


_HOMES = """
    SELECT entity, id, product_instance_id FROM child_home WHERE entity = ANY(%s) {within}
"""
_MOVED = "SELECT entity, id, other_application FROM child_moved WHERE product_instance_id = %s"


class Homes:
    """The applications of children, each asked for once."""

    def __init__(self) -> None:
        self._known: dict[Named, set[str]] = {}
        # By application, those of its children that are in others, too, each with these.
        self._moved: dict[str, dict[Named, set[str]]] = {}

    def within(self, entity: Entity, ids: Collection[str]) -> Within:
        """The condition for a statement that names these entities, which need not exist, by their
        id. Empty in a plain installation."""
        if entity.parent is not None:
            return self.pinned(entity, ids)
        return Within(homes=frozenset(ids) if apart() else None)

    def pinned(self, entity: Entity, ids: Collection[str]) -> Within:
        """The same for a statement that takes the ids from rows: also for an application itself."""
        if not apart():
            return Within()
        homes = ids if entity.parent is None else self.of(entity, ids)
        return condition(column(entity), homes)

    def of(self, entity: Entity, ids: Collection[str]) -> set[str]:
        """The applications that have versions of these children, or had some. None of a child that
        the store does not have."""
        unknown = sorted({id for id in ids if (entity.name, id) not in self._known})
        if unknown:
            # Of all kinds: an id that is searched for may be of any.
            kinds = [kind.name for kind in CHILDREN]
            self._known.update(((kind, id), set()) for kind in kinds for id in unknown)
            where = condition("id", unknown)
            statement = _HOMES.format(within=where.text)
            for kind, id, home in statements.fetch(statement, [kinds, *where.values]):
                self._known[kind, id].add(home)
        return {home for id in ids for home in self._known[entity.name, id]}

    def note(self, id: str, found: Iterable[Named]) -> None:
        """All applications of the children with this id: kind, application."""
        self._known.update(((kind.name, id), set()) for kind in CHILDREN)
        for kind, home in found:
            if (kind, id) in self._known:
                self._known[kind, id].add(home)

    def seen(self, application: str, children: Iterable[tuple[Entity, str]]) -> None:
        """These children were found in an application: they are there, and where else they are
        takes one small question for all of them."""
        new = {(entity.name, id) for entity, id in children if entity.parent is not None}
        if not new or not apart() or new <= self._known.keys():
            return
        if application not in self._moved:
            self.moved(application, statements.fetch(_MOVED, [application]))
        for child in new - self._known.keys():
            self._known[child] = {application, *self.elsewhere(application).get(child, ())}

    def moved(self, application: str, found: Iterable[tuple[str, str, str]]) -> None:
        """The rows of child_moved of an application: kind, id, other application."""
        self._moved[application] = {}
        for kind, id, other in found:
            self._moved[application].setdefault((kind, id), set()).add(other)

    def elsewhere(self, application: str) -> Mapping[Named, set[str]]:
        """The children of an application that are in others, too, as far as they are known."""
        return self._moved.get(application, {})
