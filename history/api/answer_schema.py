"""The JSON Schema of answers and parameters, made of their types for the OpenAPI document."""

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import msgspec

from history.common.answer_types import Answer

JsonSchema: TypeAlias = dict[str, Any]

# A Struct with such a name is a component of the document, without this end of the name.
_COMPONENT_SUFFIX: Final = "Answer"


def make_schema(type_: Any) -> JsonSchema:
    """Return the schema of one type. Components are references, everything else stands inside."""
    [schema], structs = msgspec.json.schema_components([type_], ref_template="{name}")
    resolved: JsonSchema = _resolve(schema, structs)
    return resolved


def make_components(answers: Iterable[type[Answer]]) -> dict[str, JsonSchema]:
    """Return `components.schemas` of the document: the answers and the components in them."""
    _, structs = msgspec.json.schema_components(answers, ref_template="{name}")
    return {
        name.removesuffix(_COMPONENT_SUFFIX): _resolve(schema, structs)
        for name, schema in structs.items()
        if name.endswith(_COMPONENT_SUFFIX)
    }


def _resolve(schema: Any, structs: dict[str, JsonSchema]) -> Any:
    """Point references at components, and put what is not a component in place of its reference."""
    if isinstance(schema, list):
        return [_resolve(item, structs) for item in schema]
    if not isinstance(schema, dict):
        return schema
    resolved = {
        key: _resolve(value, structs)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))  # the name of a Python class
    }
    name = resolved.pop("$ref", None)
    if name is None:
        return resolved
    if name.endswith(_COMPONENT_SUFFIX):
        component = name.removesuffix(_COMPONENT_SUFFIX)
        return {**resolved, "$ref": f"#/components/schemas/{component}"}
    return {**_resolve(structs[name], structs), **resolved}
