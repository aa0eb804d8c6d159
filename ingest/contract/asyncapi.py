"""The AsyncAPI 3.0 document of the topics: a channel for each, with the messages of its kind."""

from __future__ import annotations

from typing import Any, Final

from history.entities import ENTITIES, Entity
from history.record import ID_LENGTH
from ingest.contract import schema

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
        "operations": {_operation(topic): _receive(topic) for _, topic in topics},
        "components": {
            "messages": {entity.name: _message(entity) for entity in ENTITIES},
            "schemas": {
                _COMMON: schema.common(),
                **{
                    entity.name: schema.kind(entity, f"#/components/schemas/{_COMMON}")
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


def _operation(topic: str) -> str:
    return f"read-{topic}"


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
