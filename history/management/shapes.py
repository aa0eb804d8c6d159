"""The JSON that the commands of history print; see ingest.management.shapes for the form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_NEED: Final = dict.fromkeys(("data", "index", "wal", "reserve", "total"), "number")
_AMOUNT: Final = dict.fromkeys(("versions", "versionsError", "bytes", "bytesError"), "number")
_BROUGHT: Final = {
    **_AMOUNT,
    "share": "number",
    "shareError": "number",
    "nothing": _AMOUNT,
    "technical": _AMOUNT,
    "sampled": "whole number",
}
_SPREAD: Final = dict.fromkeys(("smallest", "mean", "largest"), "number")
_CLUSTER: Final = {
    "nodes": "whole number",
    "shards": "whole number",
    "disk": "whole number or null",
    "moveRate": "whole number",
    "large": {"count": "whole number", "versions": "whole number", "bytes": "number"},
    "shard": _SPREAD,
    "shardLimit": "number",
    "shardLimitBecauseOf": "text",
    "worker": _SPREAD,
    "tablesOnWorker": "whole number",
    "growth": {
        "<growth>": {
            "shardTooLargeOn": "text or null",
            "workerFullOn": "text or null",
            "shardsForThreeYears": "whole number or null",
            "workersForThreeYears": "whole number or null",
        }
    },
    "rebalance": {
        "moves": "whole number",
        "bytes": "number",
        "hours": "number",
        "worker": _SPREAD,
    },
}
SHAPES: Final[Mapping[str, Any]] = {
    "capacity": {
        "basis": "text",
        "retentionDays": "whole number",
        "tables": {"<table>": _NEED},
        "total": _NEED,
        "disk": "number or null",
        "fullOn": {"<growth>": "text or null"},
        "retention": [
            {
                "days": "whole number",
                "total": "number",
                "difference": "number",
                "freesNow": "number",
            }
        ],
        "cluster": (_CLUSTER, "null"),
    },
    "export": {
        "table": "text",
        "days": "whole number",
        "before": "whole number",
        "rows": "whole number",
        "seconds": "number",
        "failed": [{"name": "text", "why": "text"}],
        "missing": [{"first": "day", "last": "day", "why": "text"}],
        "copy": ({"rows": "whole number", "seconds": "number", "share": "number"}, "null"),
    },
    "gaps": {
        "days": "whole number",
        "documents": "whole number",
        "expired": "whole number",
        "seconds": "number",
        "gaps": "whole number",
        "versions": "whole number",
        "quarantined": "whole number",
        "by": [
            {
                "entity": "text",
                "client_id": "text",
                "gaps": "whole number",
                "versions": "whole number",
            }
        ],
    },
    "gaps list": {
        "gap": "whole number",
        "kind": "text",
        "id": "text",
        "first": "whole number",
        "last": "whole number",
        "beginning": "true or false",
        "clientId": "text",
        "since": "time",
        "until": "time",
        "foundAt": "time",
        "closedAt": "time or null",
        "outcome": "text or null",
        "quarantined": {"<version>": {"reason": "text", "at": "time"}},
        "asked": [
            {
                "source": "text",
                "at": "time",
                "gone": "true or false",
                "refused": "true or false",
                "detail": "text or null",
                "nextAttempt": "time or null",
            }
        ],
    },
    "labels load": {"loaded": "whole number"},
    "people import": {
        "added": "whole number",
        "changed": "whole number",
        "unchanged": "whole number",
    },
    "search index": {
        "partitions": "whole number",
        "rows": "whole number",
        "keys": "whole number",
    },
    "share": {
        "since": "day",
        "until": "day",
        "days": "whole number",
        "retentionDays": "whole number",
        "sampled": "whole number",
        "services": [{"clientId": "text or null", "entity": "text", **_BROUGHT}],
        "clients": [{"clientId": "text or null", **_BROUGHT}],
        "total": _BROUGHT,
        "saved": {"<what>": {"bytes": "number", "bytesError": "number"}},
    },
}
