"""The parts of an address that name an entity, for the API and for the screens."""

from __future__ import annotations

import re

from django.urls import register_converter

from history.entities import BY_NAME, Entity


class EntityName:
    """`<entity:...>`: the name of a declared kind. Other names are left to other addresses, so that
    /admin/history/person/ stays the list of people."""

    regex = "|".join(re.escape(name) for name in BY_NAME)

    def to_python(self, value: str) -> Entity:
        return BY_NAME[value]

    def to_url(self, value: Entity | str) -> str:
        return value if isinstance(value, str) else value.name


class Id:
    """`<id:...>`: an id with any characters, also slashes and line breaks. Longer addresses must be
    declared before shorter ones: the end of an address names the page or the call."""

    regex = r"[\s\S]+"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return value


register_converter(EntityName, "entity")
register_converter(Id, "id")

KIND = "<entity:entity>"
ID = "<id:id>"
APPLICATION_ID = "<id:productInstanceId>"
