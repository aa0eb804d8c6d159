"""The JSON Schema (draft 2020-12) of a message, made from the limits of the decoder."""

import json
from collections.abc import Mapping
from typing import Any, Final

from history.documents.jsonb import MOST_DIGITS
from history.entities import ENTITIES, Entity
from history.record import AUTHOR_LENGTH, CLIENT_ID_LENGTH, ID_LENGTH, MAX_VERSION, ChangeType
from ingest.source.decode import MAX_NESTING
from ingest.source.envelope import RULES

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
NAME: Final = "urn:annals:message"
APPLICATION: Final = "productInstanceId"

# What the decoder judges and a schema does not; a test has a message for each.
BEYOND: Final[Mapping[str, str]] = {
    "bytes": "what is no JSON in UTF-8 at all, as NaN or a byte order mark; many parsers accept it",
    "surrogates": "half of a surrogate pair in a text, as `\\ud800`; many parsers accept it",
    "repeated names": "a name that an object has twice: parsers keep the last value, and Annals "
    "also checks the earlier ones",
    "number notation": "7.0 and 7e0 in the place of 7: to a schema they are whole numbers",
    "leap days": "29 February in a year that has none",
    "the clock": "an `updatedAt` after the last day that is accepted",
    "nesting": f"objects and lists in more than {MAX_NESTING} levels",
    "exponents": f"numbers whose exponents stand for more than {MOST_DIGITS:,} digits together",
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


def common() -> Schema:
    """The rules that the messages of all kinds share, without the name of the dialect."""
    return {
        "type": "object",
        "required": ["id", "version", "updatedAt", "clientId", "data"],
        "properties": {
            "id": _text("id", ID_LENGTH, least=1),
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
            "clientId": _text("clientId", CLIENT_ID_LENGTH, least=1),
            "author": {**_text("author", AUTHOR_LENGTH), "type": ["string", "null"]},
            APPLICATION: {
                "description": RULES[APPLICATION],
                "type": ["string", "null"],
                "maxLength": ID_LENGTH,
            },
            "data": {"description": RULES["data"], "type": ["object", "null"]},
        },
        "allOf": [_REV_TYPE_COUNTS, _NULL_FOR_DELETE],
    }


def of_entity(entity: Entity) -> Schema:
    """The whole schema of the messages of one kind, without references."""
    return {
        "$schema": DIALECT,
        "$id": f"{NAME}:{entity.name}",
        "title": f"One version of one {entity.name}",
        **_inline(entity),
    }


def of_all() -> Schema:
    """The schema of every message, with that of each kind in $defs."""
    return {
        "$schema": DIALECT,
        "$id": NAME,
        "title": "One version of one entity, as Annals reads it from Kafka",
        "description": "docs/contract.md has the rules that a schema cannot express.",
        **common(),
        "$defs": {entity.name: kind(entity, "#") for entity in ENTITIES},
    }


def kind(entity: Entity, whole: str) -> Schema:
    """What the messages of one kind must be. whole: where the common rules are."""
    if entity.parent is None:
        return {"$ref": whole}
    if entity.parent != APPLICATION:
        return _inline(entity)
    own = {"required": [APPLICATION], "properties": {APPLICATION: _parent()}}
    return {"allOf": [{"$ref": whole}, own]}


def _inline(entity: Entity) -> Schema:
    schema = common()
    if entity.parent is not None:
        schema["required"] = [*schema["required"], entity.parent]
        # Where another field names the parent, this one is as any that Annals does not know.
        del schema["properties"][APPLICATION]
        schema["properties"][entity.parent] = _parent()
    return schema


def _parent() -> Schema:
    return _text(APPLICATION, ID_LENGTH, least=1)


def _text(name: str, longest: int, least: int = 0) -> Schema:
    schema: Schema = {"description": RULES[name], "type": "string"}
    if least:
        schema["minLength"] = least
    return {**schema, "maxLength": longest, "pattern": _NO_NUL}


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


# Of the contract, not of Annals: it changes when a message that was good is refused.
VERSION: Final = "1.0.0"
_BINDING: Final = "0.5.0"
_COMMON: Final = "message"


def document() -> dict[str, Any]:
    """The document, for the kinds that are declared."""
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
        "channels": {topic: _channel(entity, topic) for entity, topic in topics},
        "operations": {f"read-{topic}": _receive(topic) for _, topic in topics},
        "components": {
            "messages": {entity.name: _message(entity) for entity in ENTITIES},
            "schemas": {
                _COMMON: common(),
                **{
                    entity.name: kind(entity, f"#/components/schemas/{_COMMON}")
                    for entity in ENTITIES
                },
            },
        },
    }


def _channel(entity: Entity, topic: str) -> dict[str, Any]:
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


def _receive(topic: str) -> dict[str, Any]:
    # "/" and "~" are not in names of topics, so the name is a pointer's segment as it is.
    return {
        "action": "receive",
        "channel": {"$ref": f"#/channels/{topic}"},
        "summary": "Stores the version, or puts the message into quarantine with a reason.",
    }


def _message(entity: Entity) -> dict[str, Any]:
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


def text(document: Mapping[str, Any]) -> str:
    """A document as it is printed, and as it is in docs/."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
