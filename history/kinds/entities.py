"""The kinds of entities that Annals keeps, as the file of kinds declares them."""

from history.kinds.kind import EntityKind
from history.kinds.kinds_file import load_kinds

__all__ = [
    "BY_NAME",
    "BY_TABLE",
    "BY_TOPIC",
    "CHILDREN",
    "ENTITIES",
    "PARTS",
    "ROOT",
    "SEARCH_VALUE_LENGTH",
    "EntityKind",
    "get_root",
]

# Characters of the longest business key. Longer values are not searched for.
SEARCH_VALUE_LENGTH = 100

ENTITIES = load_kinds()
# The main kind, which is the application itself; None where all kinds stand alone.
ROOT = next((entity for entity in ENTITIES if entity.root), None)
CHILDREN = tuple(entity for entity in ENTITIES if entity.parent is not None)
# The kinds that make up an application.
PARTS = tuple(entity for entity in ENTITIES if not entity.alone)
BY_NAME = {entity.name: entity for entity in ENTITIES}
BY_TABLE = {entity.table: entity for entity in ENTITIES}
BY_TOPIC = {topic: entity for entity in ENTITIES for topic in entity.topics}


def get_root() -> EntityKind:
    """Return the main kind, for code that is reached only if there is one.

    Raises:
        LookupError: No main kind is declared.
    """
    if ROOT is None:
        raise LookupError("no main kind is declared")
    return ROOT
