"""One example answer of every call for the OpenAPI document. Tests check them by the schemas."""

from typing import Any

from history.entities import CHILDREN, ENTITIES, ROOT

SHOWN = ROOT or ENTITIES[0]
SHOWN_CHILD = (*CHILDREN, SHOWN)[0]

ID, CHILD = "02xdf2pQLJL5mLfJZodiHa", "7pQLJL5mLfJZodiHa02xdf"
SERVICE = {"clientId": "top-crm", "clientName": "Обмен с CRM"}
WHO = {"author": "m.prygunov", "authorName": "Прыгунов Максим", "authorKind": "person"}
ORIGIN = {
    "version": 7,
    "type": "UPDATE",
    "updatedAt": "2025-07-03T14:42:48.510186+03:00",
    **SERVICE,
    **WHO,
    "exact": True,
}
CHANGE = {
    "path": "/rate",
    "keyPath": "/rate",
    "label": "Процентная ставка",
    "fieldKind": "percent",
    "kind": "changed",
    "old": "18.4",
    "new": "17.9",
}
DIFF = [{"op": "replace", "path": "/rate", "value": "17.9"}]
COMPLETENESS: dict[str, Any] = {
    "completeTo": "2025-07-03T14:43:00.000000+03:00",
    "lagMessages": 0,
    "lagSeconds": 1.204,
    "halted": False,
    "retentionStart": "2025-04-04T03:00:00.000000+03:00",
}
SNAPSHOT: dict[str, Any] = {
    "kind": SHOWN.name,
    "id": ID,
    "entity": {"pid": ID, "rate": "17.9", "amount": "5200000.0"},
    "version": 7,
    "type": "UPDATE",
    "updatedAt": "2025-07-03T14:42:48.510186+03:00",
    "createdAt": "2025-07-01T09:00:00.25",
    "closedAt": None,
    **SERVICE,
    **WHO,
    "previousVersion": 6,
    "missingVersions": [],
    "missingCount": 0,
    "missingReason": None,
    "olderVersions": None,
}
BEFORE = {**SNAPSHOT, "version": 3, "previousVersion": 2}
PART = {
    **{name: value for name, value in SNAPSHOT.items() if name != "closedAt"},
    "kind": SHOWN_CHILD.name,
    "id": CHILD,
    "productInstanceId": ID,
    "entity": {"pid": CHILD, "role": "BORROWER"},
}

VERSION = {**SNAPSHOT, "diff": DIFF, "changes": [CHANGE]}
TIMELINE = {
    "history": [VERSION],
    "nextPageToken": "v1:W3sidXMiOjE3NTE1NDI5Njg1MTAxODZ9LDAsIjAyeGRmMnAiLDdd:1uXk2e:b0VYd2Y",
    "completeness": {**COMPLETENESS, "missingVersions": 0},
}
COMPARISON = {"from": BEFORE, "to": SNAPSHOT, "diff": DIFF, "changes": [CHANGE]}
VERSION_AT = {
    "time": "2025-07-03T15:00:00.000000+03:00",
    **SNAPSHOT,
    "deleted": False,
    "completeness": COMPLETENESS,
}
FIELD = {
    "path": "/rate",
    "label": "Процентная ставка",
    "values": [{"value": "17.9", "since": ORIGIN["updatedAt"], "until": None, **ORIGIN}],
    "completeness": COMPLETENESS,
}
BLAME = {
    **SNAPSHOT,
    "blame": [
        {
            "path": "/rate",
            "keyPath": "/rate",
            "value": "17.9",
            "label": "Процентная ставка",
            **ORIGIN,
        }
    ],
    "completeness": COMPLETENESS,
}
APPLICATION = {
    "time": "2025-07-03T15:00:00.000000+03:00",
    "application": SNAPSHOT,
    "children": {SHOWN_CHILD.name: [PART]},
    "deleted": [],
    "missing": [{"kind": "product-task", "id": "5LmLfJZodiHa02xdf7pQLJ", "reason": "unknown"}],
    "completeness": COMPLETENESS,
}
SEARCH = {
    "results": [
        {
            "kind": SHOWN.name,
            "id": ID,
            "productInstanceId": ID,
            "foundBy": "clientId",
            "foundIn": [{"kind": SHOWN_CHILD.name, "id": CHILD}],
            "version": 7,
            "type": "UPDATE",
            "updatedAt": "2025-07-03T14:42:48.510186+03:00",
        }
    ],
    "limited": False,
    "completeness": COMPLETENESS,
}
SUMS = {
    "read": 20480,
    "stored": 20400,
    "repeated": 61,
    "expired": 2,
    "quarantined": 17,
    "skipped": 0,
    "lost": 0,
}
STORE = {
    "completeness": COMPLETENESS,
    "ok": True,
    "faults": [],
    "totals": {**SUMS, "lag": 0},
    "gaps": {
        "lookedAt": "2025-07-03T11:17:00.000000+00:00",
        "gaps": 1,
        "missing": 2,
        "arrived": 0,
    },
    "retired": [
        {
            "topic": SHOWN.topics[-1],
            "why": "the migration ended",
            "at": "2025-06-30T09:00:00.000000+00:00",
        }
    ],
    "neverRead": [],
    "undeclared": [],
    "losses": [
        {
            "topic": SHOWN.topics[0],
            "partition": 0,
            "unread": 0,
            "lossSeconds": 28800.0,
            "catchUpSeconds": 0.0,
            "keptSeconds": 28800.0,
        }
    ],
    "partitions": [
        {
            "topic": SHOWN.topics[0],
            "partition": 0,
            "topicId": "b3Jpb24tdG9waWMtaWQ",
            "current": True,
            "logCut": False,
            "firstOffset": 0,
            "nextOffset": 20480,
            **SUMS,
            "lostAcknowledged": 0,
            "lag": 0,
            "newestMessageAt": "2025-07-03T11:42:48.512000+00:00",
            "checkedAt": "2025-07-03T11:43:00.000000+00:00",
            "haltedAt": None,
            "haltedWhy": "",
        }
    ],
}
FATE: dict[str, Any] = {
    "state": "quarantined",
    "certain": True,
    "at": "2025-07-03T14:43:00.000000+03:00",
    "reason": "bad_updated_at",
    "why": "Version 5 came on 2025-07-03 11:43 UTC and is in quarantine: updatedAt is wrong.",
    "kind": SHOWN.name,
    "id": ID,
    "version": 5,
    "updatedAt": None,
    "topic": SHOWN.topics[0],
    "partition": 0,
    "offset": 1742,
    "mayBe": None,
}
# Of the errors whose message depends on the request; the others have one message each.
MESSAGES = {
    "bad_parameter": "pageSize: must be a whole number from 1 to 500",
    "not_authenticated": "nobody is logged in; log in, or send a token",
    "need_to_know": "this application is open only to those who work on it; the attempt is"
    " recorded",
    "not_found": f"the store has no version of {SHOWN.name} {ID}",
    "older_than_retention": "versions before 2025-04-04 are not kept",
    "unknown_entity": f"there is no kind of entity of this name; there are {SHOWN.name}",
}


def error(code: str, message: str) -> dict[str, Any]:
    """The whole answer to a failure."""
    said = {"code": code, "message": message, "requestId": "4f0c1f6ad28f4d2c8b7c6e1f5a3b2c1d"}
    if code == "bad_parameter":
        said["parameter"] = message.partition(":")[0]
    return {"status": "error", "error": said}
