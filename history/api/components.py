"""The shapes of answers, as JSON Schema: `components.schemas` of the OpenAPI document."""

from history import trace
from history.api.json_schema import Schema, list_of, nullable, object_of, one_of, ref, said
from history.entities import BY_NAME
from history.models import FieldLabel, Person
from history.reasons import REASONS
from history.record import MAX_VERSION, ChangeType
from history.timeline import Absence
from history.timeline.query import AskedState

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer", "minimum": 0, "maximum": MAX_VERSION}
COUNT: Schema = {"type": "integer", "minimum": 0, "maximum": MAX_VERSION}
OFFSET: Schema = {"type": "integer", "minimum": 0, "maximum": 10**18 - 1}
SECONDS: Schema = {"type": "number", "minimum": 0}
MOMENT: Schema = {"type": "string", "format": "date-time"}
FLAG: Schema = {"type": "boolean"}
ANYTHING: Schema = {}
TYPE = one_of(*ChangeType.__members__)
KIND = one_of(*BY_NAME)

SERVICE = {
    "clientId": TEXT,
    "clientName": said(TEXT, "Name of the service; its client id if it has none."),
}
AUTHOR = {
    "author": nullable(TEXT),
    "authorName": nullable(TEXT),
    "authorKind": nullable(one_of(*Person.Kind.values, "unknown")),
}
ORIGIN = {
    "version": NUMBER,
    "type": TYPE,
    "updatedAt": MOMENT,
    **SERVICE,
    **AUTHOR,
    "exact": said(FLAG, "false: an older version that is not in the store may have set it."),
}
SUMS = dict.fromkeys(
    ("read", "stored", "repeated", "expired", "quarantined", "skipped", "lost"), COUNT
)
PLACE = {"kind": KIND, "id": TEXT}
ABSENCE = one_of(*(why.value for why in Absence))

MISSING = {
    "missingVersions": said(
        list_of(NUMBER),
        "The numbers in between that are not in the store, at most the newest 1000.",
    ),
    "missingCount": COUNT,
    "missingReason": said(
        nullable(
            one_of(Absence.NEVER_ARRIVED.value, Absence.QUARANTINED.value, Absence.UNKNOWN.value)
        ),
        "Why they are missing; inQuarantine: one of them at least came and could "
        "not be stored, which `trace` explains; unknown: removed by retention or never arrived.",
    ),
}
HELD = {
    "version": said(nullable(NUMBER), "null: the message does not say it."),
    "updatedAt": said(nullable(MOMENT), "Of the version; null: it cannot be read."),
    "reason": said(one_of(*REASONS), "Why it could not be stored."),
    "readAt": said(MOMENT, "When Annals read the message."),
}
QUARANTINED = {
    "quarantined": said(
        list_of(object_of({**PLACE, **HELD})),
        "Messages about this document, or about this application and its children, that came and "
        "could not be stored; neither stored since nor discarded. Their changes are not in the "
        "answer. Above, between and below the stored versions; those that came last first, at most "
        "100.",
    ),
    "quarantinedCount": said(COUNT, "How many there are; 1000: at least as many."),
}
UNCERTAIN = {
    "uncertain": said(
        list_of(
            object_of(
                {
                    **PLACE,
                    **MISSING,
                    "quarantined": said(
                        list_of(object_of(HELD)),
                        "Messages in quarantine that may have come before the moment.",
                    ),
                }
            )
        ),
        "The documents of which the versions right after the one of the moment are missing or in "
        "quarantine. These may have come before the moment: the state may have been different.",
    )
}

VERSION_REQUIRED = {
    **PLACE,
    "version": NUMBER,
    "type": TYPE,
    "updatedAt": MOMENT,
    "createdAt": said(ANYTHING, "When the snapshot says it was created, unchanged."),
    **SERVICE,
    **AUTHOR,
    "previousVersion": said(
        nullable(NUMBER), "The nearest lower version in the store; null for the lowest."
    ),
    **MISSING,
    "olderVersions": said(
        nullable(ABSENCE),
        "For the lowest version in the store: why there is nothing before it; null "
        "if there never was.",
    ),
}
VERSION_OPTIONAL = {
    "productInstanceId": TEXT,
    "closedAt": said(
        ANYTHING, "When the snapshot says it was closed; of kinds that declare where it is."
    ),
    "entity": said(ANYTHING, "The snapshot, its numbers exact."),
    "diff": said(
        {"oneOf": [list_of(ref("Operation")), {"type": "null"}]},
        "RFC 6902: applied to the snapshot of previousVersion it gives entity.",
    ),
    "changes": said(list_of(ref("Change")), "The first ones, at most 1000. diff always has all."),
    "changeCount": said(COUNT, "How many there are, where changes has not all."),
    "nextChanges": said(
        COUNT, "changesAfter for the rest of them; absent where changes has the last one."
    ),
    "fromFallback": said(
        {**FLAG, "const": True}, "The store does not have this version; the old service does."
    ),
    "fallbackUpdatedAt": said(
        MOMENT, "When the old service has this version, where its clock differs."
    ),
}

DAMAGED = {
    "damaged": said(
        list_of(object_of({**PLACE, "version": nullable(NUMBER)})),
        "What this list lacks because its stored form is damaged and cannot be read: a version, or "
        "(null) the whole document. With it the versions that would be compared with it are left "
        "out. Absent where the list lacks nothing.",
    )
}

# Of every answer for which the old service was asked.
FALLBACK = {
    "fallback": said(
        object_of(
            {
                "state": one_of(*(state.value for state in AskedState)),
                "olderVersionsMayBeMissing": said(
                    FLAG,
                    "true: the old service failed, so that versions which only it "
                    "has may be missing from this answer.",
                ),
            }
        ),
        "What came of asking the old service; absent where it was not asked.",
    )
}

VALUE = object_of(
    {"since": MOMENT, "until": nullable(MOMENT), **ORIGIN},
    {"value": {"description": "Absent: the field was not there in that time."}},
)
LEAF = object_of(
    {"path": TEXT, "keyPath": TEXT, "value": ANYTHING, "label": nullable(TEXT), **ORIGIN}
)
RESULT = object_of(
    {
        **PLACE,
        "foundBy": said(TEXT, "id, or the name of a business key."),
        "foundIn": said(
            list_of(object_of(PLACE)), "The documents with the business key; none for an id."
        ),
        "version": said(nullable(NUMBER), "The newest; null if the store has only children."),
        "type": nullable(TYPE),
        "updatedAt": MOMENT,
        "quarantinedCount": said(
            COUNT, "Messages about it and its children that are in quarantine, as in a timeline."
        ),
    },
    {"productInstanceId": TEXT},
)
GAPS = object_of({"lookedAt": nullable(MOMENT), "gaps": COUNT, "missing": COUNT, "arrived": COUNT})
LOSS = object_of(
    {
        "topic": TEXT,
        "partition": COUNT,
        "unread": COUNT,
        **dict.fromkeys(("lossSeconds", "catchUpSeconds", "keptSeconds"), nullable(SECONDS)),
    }
)
PARTITION = object_of(
    {
        "topic": TEXT,
        "partition": COUNT,
        "topicId": TEXT,
        "current": said(FLAG, "false: the topic was deleted and created again."),
        "logCut": said(FLAG, "The log was cut; it is read again in another row."),
        "firstOffset": COUNT,
        "nextOffset": COUNT,
        **SUMS,
        "lostAcknowledged": said(COUNT, "Those of the lost messages that were acknowledged."),
        "lag": nullable(COUNT),
        "newestMessageAt": nullable(MOMENT),
        "checkedAt": MOMENT,
        "haltedAt": nullable(MOMENT),
        "haltedWhy": TEXT,
    }
)

COMPONENTS: dict[str, Schema] = {
    "Operation": object_of(
        {"op": one_of("add", "remove", "replace", "move"), "path": TEXT},
        {"from": TEXT, "value": ANYTHING},
    ),
    "Change": object_of(
        {
            "path": said(
                TEXT, "RFC 6901, in the new snapshot; for a removed value in the old one."
            ),
            "keyPath": said(
                TEXT, "The same with list items named by their key: /documents/[pid=4ad]/status"
            ),
            "label": nullable(TEXT),
            "fieldKind": nullable(one_of(*FieldLabel.Kind.values)),
            "kind": one_of("added", "removed", "changed", "moved"),
        },
        {"old": ANYTHING, "new": ANYTHING, "fromIndex": COUNT, "toIndex": COUNT},
    ),
    # QUARANTINED only at an address of its own.
    "Version": object_of(VERSION_REQUIRED, {**VERSION_OPTIONAL, **QUARANTINED, **FALLBACK}),
    "Completeness": object_of(
        {
            "completeTo": said(
                nullable(MOMENT),
                "Everything sent up to this moment has been read; null: not known.",
            ),
            "lagMessages": nullable(COUNT),
            "lagSeconds": nullable(SECONDS),
            "halted": said(FLAG, "Reading has stopped: too many bad messages."),
            "retentionStart": said(MOMENT, "Nothing older is kept."),
        },
        {
            "missingVersions": said(COUNT, "Sum of missingCount in this answer."),
            "quarantined": said(
                COUNT,
                "quarantinedCount of this answer: what was read up to completeTo is stored, or "
                "among these, unless quarantinedWithoutId is not 0.",
            ),
            "quarantinedWithoutId": said(
                COUNT,
                "Messages in quarantine that do not say which document they are about; 1000: at "
                "least as many.",
            ),
        },
    ),
    "Timeline": object_of(
        {"history": list_of(ref("Version")), **QUARANTINED, "completeness": ref("Completeness")},
        {"nextPageToken": {"type": "string", "pattern": "^v1:"}, **DAMAGED, **FALLBACK},
    ),
    "Comparison": object_of(
        {"from": ref("Version"), "to": ref("Version"), **QUARANTINED},
        {
            "diff": list_of(ref("Operation")),
            **FALLBACK,
            **{name: VERSION_OPTIONAL[name] for name in ("changes", "changeCount", "nextChanges")},
        },
    ),
    "VersionAt": object_of(
        {
            **VERSION_REQUIRED,
            "time": MOMENT,
            "deleted": FLAG,
            **UNCERTAIN,
            **QUARANTINED,
            "completeness": ref("Completeness"),
        },
        {**VERSION_OPTIONAL, **FALLBACK},
    ),
    "FieldHistory": object_of(
        {
            "path": TEXT,
            "label": nullable(TEXT),
            "values": list_of(VALUE),
            **QUARANTINED,
            "completeness": ref("Completeness"),
        },
        {"nextPageToken": {"type": "string", "pattern": "^v1:"}, **FALLBACK},
    ),
    "Blame": object_of(
        {
            **VERSION_REQUIRED,
            "blame": list_of(LEAF),
            **QUARANTINED,
            "completeness": ref("Completeness"),
        },
        {
            **VERSION_OPTIONAL,
            **FALLBACK,
            "leafCount": said(COUNT, "How many there are, where blame has not all."),
            "nextLeaves": said(
                COUNT, "leavesAfter for the rest of them; absent where blame has the last."
            ),
        },
    ),
    "Application": object_of(
        {
            "time": MOMENT,
            "application": {"oneOf": [ref("Version"), {"type": "null"}]},
            "children": {"type": "object", "additionalProperties": list_of(ref("Version"))},
            "deleted": list_of(ref("Version")),
            "missing": said(
                list_of(object_of({**PLACE, "reason": ABSENCE})),
                "The application and children that existed then, or may have, "
                "although the store has no version of them from then.",
            ),
            **UNCERTAIN,
            **QUARANTINED,
            "completeness": ref("Completeness"),
        },
        FALLBACK,
    ),
    "SearchResults": object_of(
        {
            "results": list_of(RESULT),
            "limited": said(FLAG, "Too many documents have this key: these are the newest ones."),
            "completeness": ref("Completeness"),
        },
        {"nextPageToken": {"type": "string", "pattern": "^v1:"}, **DAMAGED},
    ),
    "Fate": object_of(
        {
            "state": said(
                one_of(*(state.value for state in trace.State)),
                "unknown: nothing shows that it was ever there; damaged: stored, and cannot be "
                "read.",
            ),
            "certain": said(FLAG, "false: stored, repeated or expired; only the sums are known."),
            "at": said(nullable(MOMENT), "When it became so, as far as known."),
            "reason": said(nullable(one_of(*REASONS)), "Why it is in quarantine."),
            "why": said(TEXT, "The same in words."),
            "kind": nullable(KIND),
            "id": nullable(TEXT),
            "version": nullable(NUMBER),
            "updatedAt": said(nullable(MOMENT), "Of a stored version."),
            "topic": said(nullable(TEXT), "The message, as far as known."),
            "partition": nullable(COUNT),
            "offset": nullable(OFFSET),
            "mayBe": {
                "oneOf": [
                    object_of({"unread": nullable(COUNT), "lost": COUNT, "expired": COUNT}),
                    {"type": "null"},
                ],
                "description": "Of a version that was never seen: how many messages of its topics "
                "are not read yet (null: not known), were lost, or came after their retention.",
            },
        },
        FALLBACK,
    ),
    "Store": object_of(
        {
            "completeness": ref("Completeness"),
            "ok": said(FLAG, "Every sum adds up and no loss is unacknowledged."),
            "faults": list_of(TEXT),
            "totals": object_of({**SUMS, "lag": COUNT}),
            "gaps": said(
                GAPS,
                "Versions that never arrived: the gaps that are open and how many "
                "versions they are, and the versions of closed ones that came late. "
                "lookedAt: when they were looked for last.",
            ),
            "retired": list_of(object_of({"topic": TEXT, "why": TEXT, "at": MOMENT})),
            "neverRead": said(
                list_of(TEXT), "Topics of which nothing is known, and that are not retired."
            ),
            "absent": said(
                list_of(object_of({"topic": TEXT, "askedAt": MOMENT})),
                "Topics that were never read because the brokers said that they do not exist, and "
                "when they were asked last.",
            ),
            "undeclared": said(
                list_of(TEXT),
                "Topics that were read, and that no declared kind has any more: "
                "nobody reads what comes to them.",
            ),
            "losses": said(
                list_of(LOSS),
                "The most endangered first: seconds until the broker deletes the "
                "oldest unread message, or one that comes now, if nothing more is read; until all "
                "is read; and for which a message that comes now is kept. null: never.",
            ),
            "partitions": list_of(PARTITION),
        }
    ),
    "Error": object_of(
        {
            "status": one_of("error"),
            "error": object_of(
                {"code": TEXT, "message": TEXT, "requestId": TEXT},
                {"parameter": said(TEXT, "The parameter that is wrong.")},
            ),
        }
    ),
}
