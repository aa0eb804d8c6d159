"""The declared kinds, loaded when a process starts."""

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

# The longest business key, in characters. Annals does not search for longer values.
SEARCH_VALUE_LENGTH = 100

ENTITIES = load_kinds()
# The main kind: its documents are the applications. None if all kinds stand alone.
ROOT = next((entity for entity in ENTITIES if entity.root), None)
CHILDREN = tuple(entity for entity in ENTITIES if entity.parent is not None)
# The kinds that make up an application.
PARTS = tuple(entity for entity in ENTITIES if not entity.is_standalone)
BY_NAME = {entity.name: entity for entity in ENTITIES}
BY_TABLE = {entity.table: entity for entity in ENTITIES}
BY_TOPIC = {topic: entity for entity in ENTITIES for topic in entity.topics}


def get_root() -> EntityKind:
    """Return the main kind. Call it only in code that needs an installation with a main kind.

    Raises:
        LookupError: No main kind is declared.
    """
    if ROOT is None:
        raise LookupError("no main kind is declared")
    return ROOT
