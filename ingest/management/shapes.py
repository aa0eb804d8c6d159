"""The JSON that the commands about messages print. docs/commands.md shows it, and
tests/db/test_shapes.py compares it with what they print.

A text names the kind of a value. A list has the kind of its items, or those of all its items where
they are several. A tuple has the kinds of which a value has one. A key in <> stands for any.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_COUNTED: Final = ("read", "stored", "repeated", "expired", "quarantined", "skipped", "lost")
COUNTS: Final = dict.fromkeys(_COUNTED, "whole number")
_LISTED: Final = {
    "id": "whole number",
    "topic": "text",
    "partition": "whole number",
    "offset": "whole number",
    "reason": "text",
    "first_reason": "text",
    "status": "text",
    "attempts": "whole number",
    "next_attempt": "time or null",
    "detail": "text",
}
SHAPES: Final[Mapping[str, Any]] = {
    "consume": {
        "read": "whole number",
        "stored": "whole number",
        "repeated": "whole number",
        "expired": "whole number",
        "quarantined": "whole number",
        "batches": "whole number",
        "largest_batch": "whole number",
        "active_seconds": "number",
        "cpu_seconds": "number",
        "halted": ["text"],
        "seconds": "number",
        "peak_mb": "whole number",
    },
    "ledger": {
        "ok": "true or false",
        "faults": ["text"],
        "totals": {**COUNTS, "lag": "whole number"},
        "retired": [{"topic": "text", "why": "text", "at": "time"}],
        "neverRead": ["text"],
        "undeclared": ["text"],
        "losses": [
            {
                "topic": "text",
                "partition": "whole number",
                "unread": "whole number",
                "lossSeconds": "number or null",
                "catchUpSeconds": "number or null",
                "keptSeconds": "number or null",
            }
        ],
        "partitions": [
            {
                "topic": "text",
                "partition": "whole number",
                "topicId": "text",
                "current": "true or false",
                "logCut": "true or false",
                "firstOffset": "whole number",
                "nextOffset": "whole number",
                **COUNTS,
                "lostAcknowledged": "whole number",
                "lag": "whole number or null",
                "newestMessageAt": "time or null",
                "checkedAt": "time",
                "haltedAt": "time or null",
                "haltedWhy": "text",
            }
        ],
    },
    "ledger acknowledge": {"topic": "text", "acknowledged": "whole number", "why": "text"},
    "ledger retire": {"topic": "text", "unread": "whole number", "why": "text"},
    "ledger unretire": {"topic": "text"},
    "quarantine list": [
        {
            "topic": "text",
            "reason": "text",
            "status": "text",
            "count": "whole number",
            "first": "time",
            "last": "time",
        }
    ],
    "quarantine list --ids": [_LISTED],
    "quarantine show": {
        **{name: kind for name, kind in _LISTED.items() if name != "id"},
        "first_detail": "text",
        "timestamp": "time or null",
        "first_seen": "time",
        "settled_at": "time or null",
        "outcome": "text",
        "key": "text or null",
        "headers": [{"name": "text", "value": "text or null"}],
        "value": "text or null",
        "value_bytes": "whole number",
    },
    "quarantine retry": {"dry_run": "true or false", "became": {"<outcome>": "whole number"}},
    "quarantine discard": {"dry_run": "true or false", "discarded": "whole number"},
    "quarantine resume": {"topic": "text", "partitions": "whole number"},
    "simulate": {
        "seed": "whole number",
        "start": "time",
        "step": "number",
        "sideBySide": "whole number",
        "seconds": "number",
        "delivered": "whole number",
        "failed": "whole number",
        "messages": "whole number",
        "oldest": "time or null",
        "newest": "time or null",
        "bytes": "whole number",
        "documents": "whole number",
        "completeDocuments": "whole number",
        "entities": {"<kind>": "whole number"},
        "types": {"<type>": "whole number"},
        "showcase": "text or null",
    },
}
