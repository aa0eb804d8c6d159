"""Django's path converters for the kinds and ids in addresses of the API and the screens."""

import re

from django.urls import register_converter

from history.documents.record import ID_LENGTH
from history.kinds.entities import BY_NAME, EntityKind


class EntityName:
    """Converts `<entity:...>`, the name of a declared kind, to the kind. Matches no other names."""

    regex = "|".join(re.escape(name) for name in BY_NAME)

    def to_python(self, value: str) -> EntityKind:
        return BY_NAME[value]

    def to_url(self, value: EntityKind | str) -> str:
        return value if isinstance(value, str) else value.name


class Id:
    """Converts `<id:...>`, an id with any characters, also slashes and line breaks.

    Because an id can have slashes, declare longer addresses before shorter ones.

    HTTP clients remove the path segments `.` and `..`. So in an address, the segment `.` of an id
    is written as 33 dots and `..` as 34 dots. No id is long enough to have such a segment.
    """

    regex = r"[\s\S]+"

    def to_python(self, value: str) -> str:
        return "/".join(_DOTS.get(part, part) for part in value.split("/"))

    def to_url(self, value: str) -> str:
        return "/".join(_WRITTEN.get(part, part) for part in value.split("/"))


_DOTS = {"." * (ID_LENGTH + len(dots)): dots for dots in (".", "..")}
_WRITTEN = {dots: written for written, dots in _DOTS.items()}


register_converter(EntityName, "entity")
register_converter(Id, "id")

# The key in request.META of the path before Django decodes it, as characters up to 255.
RAW_PATH = "annals.path"
KIND = "<entity:entity>"
ID = "<id:id>"
APPLICATION_ID = "<id:productInstanceId>"
