"""The JSON that the commands of annals print; see ingest.management.shapes for the form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_ENTRY: Final = (
    *("at", "login", "actor", "address", "action", "entity", "entity_id", "application"),
    *("outcome", "status", "reason", "method", "query", "request_id", "identity", "path", "moment"),
)
_VERDICTS: Final = ("equal", "different", "missingHere", "missingThere", "older", "tooNew")
_KEPT: Final = (
    *("asked", "recovered", "there", "refused", "quarantined", "unanswerable", "waiting"),
)
_ON_A_DAY: Final = ("adopt", "forget", "release", "restore", "seal")
_DONE: Final = {
    "table": "text",
    "day": "day",
    "rows": "whole number or null",
    "seal": "text or null",
    "failed": "text or null",
}
SHAPES: Final[Mapping[str, Any]] = {
    "check": [
        {
            "id": "text or null",
            "level": "text",
            "object": "text or null",
            "message": "text",
            "hint": "text or null",
        }
    ],
    "compare-old": {
        "ok": "true or false",
        "applications": "whole number",
        "nowhere": "whole number",
        "unavailable": "whole number",
        "versions": dict.fromkeys(_VERDICTS, "whole number"),
        "otherTimes": "whole number",
        "listed": [
            {
                "kind": "text",
                "id": "text",
                "version": "whole number",
                "verdict": "text",
                "paths": ["text"],
                "clocks": "true or false",
            }
        ],
    },
    "distribute": {
        "shards": "whole number or null",
        "distributed": ["text"],
        "shared": ["text"],
        "days": ["text"],
        "rows": "whole number",
        "bytes": "whole number",
        "done": "true or false",
        "seconds": "number",
    },
    "embedded": [
        {
            "server": "text",
            "running": "true or false",
            "port": "whole number or null",
            "pid": "whole number or null",
            "home": "text",
        }
    ],
    "gaps heal": {
        "sources": [
            {
                "source": "text",
                "documents": "whole number",
                **dict.fromkeys(_KEPT, "whole number"),
                "wrongAnswers": "whole number",
                "failed": "text or null",
                "later": "time or null",
                "unfinished": "true or false",
            }
        ]
    },
    "journal": [dict.fromkeys(_ENTRY, "text")],
    **{f"partitions {action}": _DONE for action in _ON_A_DAY},
    "partitions list": [
        {
            "table": "text",
            "name": "text",
            "day": "day or null",
            "from": "time or null",
            "to": "time or null",
            "rows": "whole number",
            "bytes": "whole number",
            "state": "text",
            "marked": "true or false",
        }
    ],
    "partitions maintain": {
        **{name: ["text"] for name in ("created", "dropped", "kept_whole", "sealed")},
        "unsealed": [["text", "text"]],
        "held": ["text"],
        "busy": ["text"],
        "broken": [["text", "text"]],
        "freed": "whole number",
        "longest_detach": "number",
        "search_keys_before": "day or null",
        "search_keys_removed": "whole number",
        "quarantine_removed": "whole number",
        "logins_removed": "whole number",
        "exitCode": "whole number",
        "archived": {
            "days": "whole number",
            "tableBytes": "whole number",
            "fileBytes": "whole number",
        },
        "seconds": "number",
    },
    "partitions plan": {
        "window": {"oldest": "day", "newest": "day"},
        "create": "whole number",
        "drop": "whole number",
        "keep": "whole number",
        "locks": {"configured": "whole number", "needed": "whole number"},
        "partitions": [
            {
                "action": "text",
                "table": "text",
                "name": "text",
                "from": "time or null",
                "to": "time or null",
                "rows": "whole number",
                "bytes": "whole number",
                "reason": "text",
            }
        ],
    },
    "partitions verify": {
        "ok": "true or false",
        "days": [
            {
                "table": "text",
                "day": "day",
                "rows": "whole number",
                "late": "whole number",
                "seal": "text",
                "fault": "text or null",
                "note": "text",
            }
        ],
    },
    "partitions verify --archive": {
        "ok": "true or false",
        "days": [
            {
                "table": "text",
                "day": "day",
                "rows": "whole number",
                "bytes": "whole number",
                "fault": "text or null",
                "note": "text",
            }
        ],
    },
    "trace": {
        "state": "text",
        "certain": "true or false",
        "at": "time or null",
        "reason": "text or null",
        "detail": "text or null",
        "why": "text",
        "kind": "text or null",
        "id": "text or null",
        "version": "whole number or null",
        "updatedAt": "time or null",
        "topic": "text or null",
        "partition": "whole number or null",
        "offset": "whole number or null",
        "recoveredFrom": "text or null",
        "mayBe": (
            {"unread": "true or false", "lost": "true or false", "expired": "true or false"},
            "null",
        ),
    },
}
