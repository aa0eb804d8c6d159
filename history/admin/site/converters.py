"""Which addresses name a kind of entity."""

import re

from history.entities import BY_NAME, Entity


class EntityName:
    """The name of a declared kind. Anything else is left to other addresses, so that
    /admin/history/person/ stays the list of people."""

    regex = "|".join(re.escape(name) for name in BY_NAME)

    def to_python(self, value: str) -> Entity:
        return BY_NAME[value]

    def to_url(self, value: Entity | str) -> str:
        return value if isinstance(value, str) else value.name
