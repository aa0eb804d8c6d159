"""The base types of the API's answers, from which the JSON and the OpenAPI document are made.

An answer is a Struct. A member that can be absent has the type `... | UnsetType` and the default
UNSET; a member that can be null has the type `... | None`.
"""

from collections.abc import Iterable
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from history.documents.record import MAX_VERSION, ChangeType
from history.kinds.entities import BY_NAME


class Answer(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """An object in an answer. The JSON has its members in the order of the fields.

    A class with a name that ends in Answer becomes a component of the OpenAPI document. Any other
    class is described inside the components that use it.
    """


def choose_from(values: Iterable[str]) -> Meta:
    """Return the annotation for a text that must be one of these values."""
    return Meta(extra_json_schema={"enum": list(values)})


VersionNumber: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_VERSION)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_VERSION)]
Offset: TypeAlias = Annotated[int, Meta(ge=0, le=10**18 - 1)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0)]
# ISO 8601 with an offset. The code that makes an answer formats moments in the request's zone.
Moment: TypeAlias = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
KindName: TypeAlias = Annotated[str, choose_from(BY_NAME)]
ChangeTypeName: TypeAlias = Annotated[str, choose_from(ChangeType.__members__)]
