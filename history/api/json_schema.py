"""Helpers that write the shapes of answers as JSON Schema."""

from typing import Any

JsonSchema = dict[str, Any]


def make_ref(name: str) -> JsonSchema:
    return {"$ref": f"#/components/schemas/{name}"}


def make_object(required: JsonSchema, optional: JsonSchema | None = None) -> JsonSchema:
    """Return the schema of an object with these members and no others."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def make_enum(*values: str) -> JsonSchema:
    return {"type": "string", "enum": list(values)}


def make_nullable(schema: JsonSchema) -> JsonSchema:
    if "enum" in schema:
        schema = {**schema, "enum": [*schema["enum"], None]}
    return {**schema, "type": [schema["type"], "null"]}


def make_list(schema: JsonSchema) -> JsonSchema:
    return {"type": "array", "items": schema}


def describe_schema(schema: JsonSchema, description: str) -> JsonSchema:
    """Return the schema with a description."""
    return {**schema, "description": description}
