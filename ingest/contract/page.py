"""The generated parts of docs/contract.md."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from history.entities import ENTITIES
from ingest.contract import asyncapi, schema
from ingest.contract.reasons import BREACHES, NO_VALUE, Breach
from ingest.source.decode import Reason
from ingest.source.field_error import RULES

# When a field is needed that the common rules do not require.
_NEEDED: Final[Mapping[str, str]] = {
    "type": "yes, or `revType`",
    "revType": "only without `type`",
    "author": "no",
    schema.APPLICATION: "for children",
}


def parts() -> dict[str, str]:
    """The Markdown of each part by its name."""
    return {
        "topics": _table(
            ["topic", "kind", "the field that names the application"],
            (
                [
                    f"`{topic}`",
                    f"`{entity.name}`",
                    f"`{entity.parent}`" if entity.parent else "none",
                ]
                for entity in ENTITIES
                for topic in entity.topics
            ),
        ),
        "fields": _table(
            ["field", "needed", "value"],
            ([f"`{name}`", _NEEDED.get(name, "yes"), rule] for name, rule in RULES.items()),
        ),
        "beyond": "".join(f"- {text[0].upper()}{text[1:]}.\n" for text in schema.BEYOND.values()),
        "reasons": _table(
            ["reason", "when", "what to do"],
            ([f"`{reason}`", BREACHES[reason].when, BREACHES[reason].remedy] for reason in Reason),
        ),
        "examples": _table(
            ["reason", "message"],
            ([f"`{reason}`", _example(BREACHES[reason])] for reason in Reason),
        ),
    }


def text(document: Mapping[str, Any]) -> str:
    """A document as it is printed, and as it is in docs/."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def schema_text() -> str:
    """The JSON Schema of a message, as it is in docs/."""
    return text(schema.of_all())


def asyncapi_text() -> str:
    """The AsyncAPI document of the topics, as it is in docs/."""
    return text(asyncapi.document())


def _example(breach: Breach) -> str:
    if breach.example is None:
        return "not a matter of the message"
    if breach.example == NO_VALUE:
        return "no value"
    first = f"`{breach.before}`, and then " if breach.before else ""
    return f"{first}`{breach.example}`"


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
