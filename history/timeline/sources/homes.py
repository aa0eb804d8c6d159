"""In which applications the versions of a child are.

Where the tables are distributed by application (docs/citus.md), a statement about a child names its
application: then it is the work of one shard. A plain installation asks nothing here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from history.database.apart import apart
from history.distribution import APPLICATION
from history.entities import CHILDREN, Entity
from history.timeline.sources import memory, statements
from history.timeline.sources.memory import Memory, Named


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


def within(entity: Entity, ids: Collection[str]) -> Within:
    """The condition for a statement that names these entities, which need not exist, by their id.
    Empty in a plain installation."""
    if entity.parent is not None:
        return pinned(entity, ids)
    return Within(homes=frozenset(ids) if apart() else None)


def pinned(entity: Entity, ids: Collection[str]) -> Within:
    """The same for a statement that takes the ids from rows: also for an application itself."""
    if not apart():
        return Within()
    return condition(column(entity), ids if entity.parent is None else of(entity, ids))


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


def of(entity: Entity, ids: Collection[str]) -> set[str]:
    """The applications that have versions of these children, or had some. None of a child that the
    store does not have."""
    homes = _present().homes
    unknown = sorted({id for id in ids if (entity.name, id) not in homes})
    if unknown:
        # Of all kinds: an id that is searched for may be of any.
        kinds = [kind.name for kind in CHILDREN]
        homes.update(((kind, id), set()) for kind in kinds for id in unknown)
        where = condition("id", unknown)
        statement = _HOMES.format(within=where.text)
        for kind, id, home in statements.fetch(statement, [kinds, *where.values]):
            homes[kind, id].add(home)
    return {home for id in ids for home in homes[entity.name, id]}


def note(id: str, found: Iterable[Named]) -> None:
    """All applications of the children with this id: kind, application."""
    homes = _present().homes
    homes.update(((kind.name, id), set()) for kind in CHILDREN)
    for kind, home in found:
        if (kind, id) in homes:
            homes[kind, id].add(home)


_MOVED = "SELECT entity, id, other_application FROM child_moved WHERE product_instance_id = %s"


def seen(application: str, children: Iterable[tuple[Entity, str]]) -> None:
    """These children were found in an application: they are there, and where else they are takes
    one small question for all of them."""
    new: set[Named] = {(entity.name, id) for entity, id in children if entity.parent is not None}
    known = memory.present()
    if not new or known is None or not apart() or new <= known.homes.keys():
        return
    if application not in known.moved:
        moved(application, statements.fetch(_MOVED, [application]))
    for child in new - known.homes.keys():
        known.homes[child] = {application, *known.moved[application].get(child, ())}


def moved(application: str, found: Iterable[tuple[str, str, str]]) -> None:
    """The rows of child_moved of an application: kind, id, other application."""
    known = memory.present()
    if known is not None:
        known.moved[application] = {}
        for kind, id, other in found:
            known.moved[application].setdefault((kind, id), set()).add(other)


def _present() -> Memory:
    return memory.present() or Memory()
