"""Django's path converters for the kinds and ids in addresses of the API and the screens."""

import re

from django.urls import register_converter

from history.documents.record import ID_LENGTH
from history.kinds.entities import BY_NAME, EntityKind


class KindConverter:
    """The converter of `<entity:...>`, which matches the names of the declared kinds."""

    regex = "|".join(re.escape(name) for name in BY_NAME)

    def to_python(self, value: str) -> EntityKind:
        return BY_NAME[value]

    def to_url(self, value: EntityKind | str) -> str:
        return value if isinstance(value, str) else value.name


class IdConverter:
    """The converter of `<id:...>`, which matches any characters, also slashes and line breaks.

    Because an id can have slashes, declare longer addresses before shorter ones.

    HTTP clients remove the path segments `.` and `..`. So in an address, the segment `.` of an id
    is written as 33 dots and `..` as 34 dots. No id is long enough to have such a segment.
    """

    regex = r"[\s\S]+"

    def to_python(self, value: str) -> str:
        return "/".join(_SEGMENTS_OF_IDS.get(part, part) for part in value.split("/"))

    def to_url(self, value: str) -> str:
        return "/".join(_SEGMENTS_IN_ADDRESSES.get(part, part) for part in value.split("/"))


# The segments `.` and `..` of ids, by their form in addresses; and the reverse.
_SEGMENTS_OF_IDS = {"." * (ID_LENGTH + len(dots)): dots for dots in (".", "..")}
_SEGMENTS_IN_ADDRESSES = {dots: written for written, dots in _SEGMENTS_OF_IDS.items()}


register_converter(KindConverter, "entity")
register_converter(IdConverter, "id")

# The key in request.META of the path before Django decodes it: a text in which each byte of the
# path is one character, from U+0000 to U+00FF.
RAW_PATH = "annals.path"
KIND = "<entity:entity>"
ID = "<id:id>"
APPLICATION_ID = "<id:productInstanceId>"
