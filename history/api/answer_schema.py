"""Makes the JSON Schemas of the OpenAPI document from the types of answers and parameters."""

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import msgspec

from history.common.answer_types import Answer

JsonSchema: TypeAlias = dict[str, Any]

# A Struct with this suffix becomes a component of the OpenAPI document, named without the suffix.
_COMPONENT_SUFFIX: Final = "Answer"


def make_schema(type_: Any) -> JsonSchema:
    """Return the JSON Schema of a type.

    A type that is a component of the OpenAPI document appears as a reference. The schema of every
    other type is written out in place.
    """
    [schema], structs = msgspec.json.schema_components([type_], ref_template="{name}")
    resolved: JsonSchema = _resolve(schema, structs)
    return resolved


def make_components(answers: Iterable[type[Answer]]) -> dict[str, JsonSchema]:
    """Return `components.schemas` of the OpenAPI document.

    The result has the schemas of `answers`, and of the components to which `answers` refer.
    """
    _, structs = msgspec.json.schema_components(answers, ref_template="{name}")
    return {
        name.removesuffix(_COMPONENT_SUFFIX): _resolve(schema, structs)
        for name, schema in structs.items()
        if name.endswith(_COMPONENT_SUFFIX)
    }


def _resolve(schema: Any, structs: dict[str, JsonSchema]) -> Any:
    """Return `schema` without references to Python classes.

    A reference to a component of the OpenAPI document becomes a `$ref` to the component. A
    reference to any other type is replaced by the schema of the type.
    """
    if isinstance(schema, list):
        return [_resolve(item, structs) for item in schema]
    if not isinstance(schema, dict):
        return schema
    # A title that is a text is the name of a Python class, and is left out.
    resolved = {
        key: _resolve(value, structs)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
    }
    name = resolved.pop("$ref", None)
    if name is None:
        return resolved
    if name.endswith(_COMPONENT_SUFFIX):
        component = name.removesuffix(_COMPONENT_SUFFIX)
        return {**resolved, "$ref": f"#/components/schemas/{component}"}
    return {**_resolve(structs[name], structs), **resolved}
