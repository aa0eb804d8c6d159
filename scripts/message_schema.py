"""Makes the JSON Schema (draft 2020-12) of a message from the limits of the decoder."""

import json
from collections.abc import Mapping
from typing import Any, Final

from history.documents.jsonb import MAX_DIGITS
from history.documents.record import (
    AUTHOR_LENGTH,
    CLIENT_ID_LENGTH,
    ID_LENGTH,
    MAX_VERSION,
    ChangeType,
)
from history.kinds.entities import ENTITIES, EntityKind
from ingest.messages.decode import MAX_NESTING
from ingest.messages.explanations import RULES

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
NAME: Final = "urn:annals:message"
APPLICATION: Final = "productInstanceId"

# What a schema cannot check but the decoder refuses. A test has a message for each entry.
BEYOND_SCHEMA: Final[Mapping[str, str]] = {
    "bytes": "what is no JSON in UTF-8 at all, as NaN or a byte order mark; many parsers accept it",
    "surrogates": "half of a surrogate pair in a text, as `\\ud800`; many parsers accept it",
    "repeated names": "a name that an object has twice: parsers keep the last value, and Annals "
    "also checks the earlier ones",
    "number notation": "7.0 and 7e0 in the place of 7: to a schema they are whole numbers",
    "leap days": "29 February in a year that has none",
    "the clock": "an `updatedAt` after the last day that is accepted",
    "nesting": f"objects and lists in more than {MAX_NESTING} levels",
    "exponents": f"numbers whose exponents stand for more than {MAX_DIGITS:,} digits together",
    "unread bytes": "bytes that are not UTF-8 in a field that Annals ignores: they are not read",
}

_YEAR = "(000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
_DAY = (
    "((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    "|02-(0[1-9]|[12][0-9]))"
)
_HOUR = "([01][0-9]|2[0-3])"
TIME_PATTERN: Final = (
    f"^{_YEAR}-{_DAY}T{_HOUR}:[0-5][0-9](:[0-5][0-9]([.,][0-9]{{1,9}})?)?"
    f"(Z|[+-]{_HOUR}(:?[0-5][0-9])?)?$"
)
_NO_NUL = "^[^\\x00]*$"
_TYPES: Final = [
    *(kind.name for kind in ChangeType),
    *(int(kind) for kind in ChangeType),
    *(str(int(kind)) for kind in ChangeType),
]
_DELETE: Final = ["DELETE", int(ChangeType.DELETE), str(int(ChangeType.DELETE))]

Schema = dict[str, Any]


def make_common_schema() -> Schema:
    """Return the schema with the rules that all kinds share, without the member `$schema`."""
    return {
        "type": "object",
        "required": ["id", "version", "updatedAt", "clientId", "data"],
        "properties": {
            "id": _make_text_field("id", ID_LENGTH, min_length=1),
            "version": {
                "description": RULES["version"],
                "type": "integer",
                "minimum": 0,
                "maximum": MAX_VERSION,
            },
            "type": {"description": RULES["type"], "enum": [*_TYPES, None]},
            "revType": {
                "description": f"{RULES['revType']}; counts if there is no `type`",
                "type": ["integer", "string", "null"],
            },
            "updatedAt": {
                "description": RULES["updatedAt"],
                "type": "string",
                "pattern": TIME_PATTERN,
            },
            "clientId": _make_text_field("clientId", CLIENT_ID_LENGTH, min_length=1),
            "author": {**_make_text_field("author", AUTHOR_LENGTH), "type": ["string", "null"]},
            APPLICATION: {
                "description": RULES[APPLICATION],
                "type": ["string", "null"],
                "maxLength": ID_LENGTH,
            },
            "data": {"description": RULES["data"], "type": ["object", "null"]},
        },
        "allOf": [_REV_TYPE_COUNTS, _NULL_FOR_DELETE],
    }


def make_entity_schema(entity: EntityKind) -> Schema:
    """Return the complete schema of one kind's messages, without references."""
    return {
        "$schema": DIALECT,
        "$id": f"{NAME}:{entity.name}",
        "title": f"One version of one {entity.name}",
        **_inline_schema(entity),
    }


def make_whole_schema() -> Schema:
    """Return the schema of all messages, with the schema of each kind in $defs."""
    return {
        "$schema": DIALECT,
        "$id": NAME,
        "title": "One version of one entity, as Annals reads it from Kafka",
        "description": "docs/contract.md has the rules that a schema cannot express.",
        **make_common_schema(),
        "$defs": {entity.name: make_kind_schema(entity, "#") for entity in ENTITIES},
    }


def make_kind_schema(entity: EntityKind, common_reference: str) -> Schema:
    """Return the schema of the messages of one kind.

    Args:
        common_reference: The reference to the common rules.
    """
    if entity.parent is None:
        return {"$ref": common_reference}
    if entity.parent != APPLICATION:
        return _inline_schema(entity)
    own_rules = {"required": [APPLICATION], "properties": {APPLICATION: _make_parent_field()}}
    return {"allOf": [{"$ref": common_reference}, own_rules]}


def _inline_schema(entity: EntityKind) -> Schema:
    schema = make_common_schema()
    if entity.parent is not None:
        schema["required"] = [*schema["required"], entity.parent]
        # If the kind names its parent in another field, Annals ignores this field.
        del schema["properties"][APPLICATION]
        schema["properties"][entity.parent] = _make_parent_field()
    return schema


def _make_parent_field() -> Schema:
    return _make_text_field(APPLICATION, ID_LENGTH, min_length=1)


def _make_text_field(name: str, max_length: int, min_length: int = 0) -> Schema:
    schema: Schema = {"description": RULES[name], "type": "string"}
    if min_length:
        schema["minLength"] = min_length
    return {**schema, "maxLength": max_length, "pattern": _NO_NUL}


_NO_TYPE: Final[Schema] = {"type": {"type": "null"}}
_REV_TYPE_COUNTS: Final[Schema] = {
    "if": {"properties": _NO_TYPE},
    "then": {"required": ["revType"], "properties": {"revType": {"enum": _TYPES}}},
}
_NULL_FOR_DELETE: Final[Schema] = {
    "if": {"required": ["data"], "properties": {"data": {"type": "null"}}},
    "then": {
        "anyOf": [
            {"required": ["type"], "properties": {"type": {"enum": _DELETE}}},
            {"required": ["revType"], "properties": {**_NO_TYPE, "revType": {"enum": _DELETE}}},
        ]
    },
}


# The version of the contract, not of Annals. It changes if messages are refused that were accepted.
VERSION: Final = "1.0.0"
_BINDING: Final = "0.5.0"
_COMMON: Final = "message"


def make_asyncapi() -> dict[str, Any]:
    """Return the AsyncAPI document for the declared kinds."""
    topics = [(entity, topic) for entity in ENTITIES for topic in entity.topics]
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Annals: the messages that it reads",
            "version": VERSION,
            "description": "Each message is one version of one entity. docs/contract.md has all "
            "rules, and what becomes of a message that breaks one.",
        },
        "defaultContentType": "application/json",
        "channels": {topic: _make_channel(entity, topic) for entity, topic in topics},
        "operations": {f"read-{topic}": _make_operation(topic) for _, topic in topics},
        "components": {
            "messages": {entity.name: _make_message(entity) for entity in ENTITIES},
            "schemas": {
                _COMMON: make_common_schema(),
                **{
                    entity.name: make_kind_schema(entity, f"#/components/schemas/{_COMMON}")
                    for entity in ENTITIES
                },
            },
        },
    }


def _make_channel(entity: EntityKind, topic: str) -> dict[str, Any]:
    return {
        "address": topic,
        "description": f"Versions of {entity.name}, in any order, each at least once. Compaction "
        "would delete versions that Annals has not read.",
        "messages": {entity.name: {"$ref": f"#/components/messages/{entity.name}"}},
        "bindings": {
            "kafka": {
                "topic": topic,
                "topicConfiguration": {"cleanup.policy": ["delete"]},
                "bindingVersion": _BINDING,
            }
        },
    }


def _make_operation(topic: str) -> dict[str, Any]:
    # Names of topics do not have "/" or "~", so a name need not be escaped in a pointer.
    return {
        "action": "receive",
        "channel": {"$ref": f"#/channels/{topic}"},
        "summary": "Stores the version, or puts the message into quarantine with a reason.",
    }


def _make_message(entity: EntityKind) -> dict[str, Any]:
    return {
        "name": entity.name,
        "title": f"One version of one {entity.name}",
        "contentType": "application/json",
        "payload": {"$ref": f"#/components/schemas/{entity.name}"},
        "bindings": {
            "kafka": {
                "key": {
                    "type": "string",
                    "maxLength": ID_LENGTH,
                    "description": "The id of the entity, as in the value.",
                },
                "bindingVersion": _BINDING,
            }
        },
    }


def format_document(document: Mapping[str, Any]) -> str:
    """Return a schema as JSON text, in the form that is printed and stored in docs/."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
