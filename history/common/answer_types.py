"""The types that answers of the API are built of: JSON and the OpenAPI document come from them.

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
    """An object in an answer. Its members stand in the JSON in the order of its fields.

    A class with a name in Answer is a component of the OpenAPI document; every other one is
    described at each place that uses it.
    """


def choose_from(values: Iterable[str]) -> Meta:
    """Return the annotation of a text that is one of these values."""
    return Meta(extra_json_schema={"enum": list(values)})


VersionNumber: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_VERSION)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_VERSION)]
Offset: TypeAlias = Annotated[int, Meta(ge=0, le=10**18 - 1)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0)]
# ISO 8601 with an offset. Times are formatted before, in the zone that the request names.
Moment: TypeAlias = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
KindName: TypeAlias = Annotated[str, choose_from(BY_NAME)]
ChangeTypeName: TypeAlias = Annotated[str, choose_from(ChangeType.__members__)]
