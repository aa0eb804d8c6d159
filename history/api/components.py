"""The shapes of answers, as JSON Schema: `components.schemas` of the OpenAPI document."""

from history.api.json_schema import (
    JsonSchema,
    describe_schema,
    make_enum,
    make_list,
    make_nullable,
    make_object,
    make_ref,
)
from history.completeness import trace
from history.documents.record import MAX_VERSION, ChangeType
from history.kinds.entities import BY_NAME
from history.models import FieldLabel, Person
from history.store.quarantine_reasons import REASONS
from history.timeline import Absence
from history.timeline.query import FallbackState

TEXT: JsonSchema = {"type": "string"}
NUMBER: JsonSchema = {"type": "integer", "minimum": 0, "maximum": MAX_VERSION}
COUNT: JsonSchema = {"type": "integer", "minimum": 0, "maximum": MAX_VERSION}
OFFSET: JsonSchema = {"type": "integer", "minimum": 0, "maximum": 10**18 - 1}
SECONDS: JsonSchema = {"type": "number", "minimum": 0}
MOMENT: JsonSchema = {"type": "string", "format": "date-time"}
FLAG: JsonSchema = {"type": "boolean"}
ANYTHING: JsonSchema = {}
TYPE = make_enum(*ChangeType.__members__)
KIND = make_enum(*BY_NAME)

SERVICE = {
    "clientId": TEXT,
    "clientName": describe_schema(TEXT, "Name of the service; its client id if it has none."),
}
AUTHOR = {
    "author": make_nullable(TEXT),
    "authorName": make_nullable(TEXT),
    "authorKind": make_nullable(make_enum(*Person.Kind.values, "unknown")),
}
ORIGIN = {
    "version": NUMBER,
    "type": TYPE,
    "updatedAt": MOMENT,
    **SERVICE,
    **AUTHOR,
    "exact": describe_schema(
        FLAG, "false: an older version that is not in the store may have set it."
    ),
}
MESSAGE_SUMS = dict.fromkeys(
    ("read", "stored", "repeated", "expired", "quarantined", "skipped", "lost"), COUNT
)
DOCUMENT_REF = {"kind": KIND, "id": TEXT}
ABSENCE = make_enum(*(why.value for why in Absence))

MISSING = {
    "missingVersions": describe_schema(
        make_list(NUMBER),
        "The numbers in between that are not in the store, at most the newest 1000.",
    ),
    "missingCount": COUNT,
    "missingReason": describe_schema(
        make_nullable(
            make_enum(Absence.NEVER_ARRIVED.value, Absence.QUARANTINED.value, Absence.UNKNOWN.value)
        ),
        "Why they are missing; inQuarantine: one of them at least came and could "
        "not be stored, which `trace` explains; unknown: removed by retention or never arrived.",
    ),
}
HELD = {
    "version": describe_schema(make_nullable(NUMBER), "null: the message does not say it."),
    "updatedAt": describe_schema(make_nullable(MOMENT), "Of the version; null: it cannot be read."),
    "reason": describe_schema(make_enum(*REASONS), "Why it could not be stored."),
    "readAt": describe_schema(MOMENT, "When Annals read the message."),
}
QUARANTINED = {
    "quarantined": describe_schema(
        make_list(make_object({**DOCUMENT_REF, **HELD})),
        "Messages about this document, or about this application and its children, that came and "
        "could not be stored; neither stored since nor discarded. Their changes are not in the "
        "answer. Above, between and below the stored versions; those that came last first, at most "
        "100.",
    ),
    "quarantinedCount": describe_schema(COUNT, "How many there are; 1000: at least as many."),
}
UNCERTAIN = {
    "uncertain": describe_schema(
        make_list(
            make_object(
                {
                    **DOCUMENT_REF,
                    **MISSING,
                    "quarantined": describe_schema(
                        make_list(make_object(HELD)),
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
    **DOCUMENT_REF,
    "version": NUMBER,
    "type": TYPE,
    "updatedAt": MOMENT,
    "createdAt": describe_schema(ANYTHING, "When the snapshot says it was created, unchanged."),
    **SERVICE,
    **AUTHOR,
    "previousVersion": describe_schema(
        make_nullable(NUMBER), "The nearest lower version in the store; null for the lowest."
    ),
    **MISSING,
    "olderVersions": describe_schema(
        make_nullable(ABSENCE),
        "For the lowest version in the store: why there is nothing before it; null "
        "if there never was.",
    ),
}
VERSION_OPTIONAL = {
    "productInstanceId": TEXT,
    "closedAt": describe_schema(
        ANYTHING, "When the snapshot says it was closed; of kinds that declare where it is."
    ),
    "entity": describe_schema(ANYTHING, "The snapshot, its numbers exact."),
    "diff": describe_schema(
        {"oneOf": [make_list(make_ref("Operation")), {"type": "null"}]},
        "RFC 6902: applied to the snapshot of previousVersion it gives entity.",
    ),
    "changes": describe_schema(
        make_list(make_ref("Change")), "The first ones, at most 1000. diff always has all."
    ),
    "changeCount": describe_schema(COUNT, "How many there are, where changes has not all."),
    "nextChanges": describe_schema(
        COUNT, "changesAfter for the rest of them; absent where changes has the last one."
    ),
    "fromFallback": describe_schema(
        {**FLAG, "const": True}, "The store does not have this version; the old service does."
    ),
    "fallbackUpdatedAt": describe_schema(
        MOMENT, "When the old service has this version, where its clock differs."
    ),
}

DAMAGED = {
    "damaged": describe_schema(
        make_list(make_object({**DOCUMENT_REF, "version": make_nullable(NUMBER)})),
        "What this list lacks because its stored form is damaged and cannot be read: a version, or "
        "(null) the whole document. With it the versions that would be compared with it are left "
        "out. Absent where the list lacks nothing.",
    )
}

# Of every answer for which the old service was asked.
FALLBACK = {
    "fallback": describe_schema(
        make_object(
            {
                "state": make_enum(*(state.value for state in FallbackState)),
                "olderVersionsMayBeMissing": describe_schema(
                    FLAG,
                    "true: the old service failed, so that versions which only it "
                    "has may be missing from this answer.",
                ),
            }
        ),
        "What came of asking the old service; absent where it was not asked.",
    )
}

VALUE = make_object(
    {"since": MOMENT, "until": make_nullable(MOMENT), **ORIGIN},
    {"value": {"description": "Absent: the field was not there in that time."}},
)
LEAF = make_object(
    {"path": TEXT, "keyPath": TEXT, "value": ANYTHING, "label": make_nullable(TEXT), **ORIGIN}
)
RESULT = make_object(
    {
        **DOCUMENT_REF,
        "foundBy": describe_schema(TEXT, "id, or the name of a business key."),
        "foundIn": describe_schema(
            make_list(make_object(DOCUMENT_REF)),
            "The documents with the business key; none for an id.",
        ),
        "version": describe_schema(
            make_nullable(NUMBER), "The newest; null if the store has only children."
        ),
        "type": make_nullable(TYPE),
        "updatedAt": MOMENT,
        "quarantinedCount": describe_schema(
            COUNT, "Messages about it and its children that are in quarantine, as in a timeline."
        ),
    },
    {"productInstanceId": TEXT},
)
GAPS = make_object(
    {"lookedAt": make_nullable(MOMENT), "gaps": COUNT, "missing": COUNT, "arrived": COUNT}
)
LOSS = make_object(
    {
        "topic": TEXT,
        "partition": COUNT,
        "unread": COUNT,
        **dict.fromkeys(("lossSeconds", "catchUpSeconds", "keptSeconds"), make_nullable(SECONDS)),
    }
)
PARTITION = make_object(
    {
        "topic": TEXT,
        "partition": COUNT,
        "topicId": TEXT,
        "current": describe_schema(FLAG, "false: the topic was deleted and created again."),
        "logCut": describe_schema(FLAG, "The log was cut; it is read again in another row."),
        "firstOffset": COUNT,
        "nextOffset": COUNT,
        **MESSAGE_SUMS,
        "lostAcknowledged": describe_schema(
            COUNT, "Those of the lost messages that were acknowledged."
        ),
        "lag": make_nullable(COUNT),
        "newestMessageAt": make_nullable(MOMENT),
        "checkedAt": MOMENT,
        "haltedAt": make_nullable(MOMENT),
        "haltedWhy": TEXT,
    }
)

COMPONENTS: dict[str, JsonSchema] = {
    "Operation": make_object(
        {"op": make_enum("add", "remove", "replace", "move"), "path": TEXT},
        {"from": TEXT, "value": ANYTHING},
    ),
    "Change": make_object(
        {
            "path": describe_schema(
                TEXT, "RFC 6901, in the new snapshot; for a removed value in the old one."
            ),
            "keyPath": describe_schema(
                TEXT, "The same with list items named by their key: /documents/[pid=4ad]/status"
            ),
            "label": make_nullable(TEXT),
            "fieldKind": make_nullable(make_enum(*FieldLabel.Kind.values)),
            "kind": make_enum("added", "removed", "changed", "moved"),
        },
        {"old": ANYTHING, "new": ANYTHING, "fromIndex": COUNT, "toIndex": COUNT},
    ),
    # QUARANTINED only at an address of its own.
    "Version": make_object(VERSION_REQUIRED, {**VERSION_OPTIONAL, **QUARANTINED, **FALLBACK}),
    "Completeness": make_object(
        {
            "completeTo": describe_schema(
                make_nullable(MOMENT),
                "Everything sent up to this moment has been read; null: not known.",
            ),
            "lagMessages": make_nullable(COUNT),
            "lagSeconds": make_nullable(SECONDS),
            "halted": describe_schema(FLAG, "Reading has stopped: too many bad messages."),
            "retentionStart": describe_schema(MOMENT, "Nothing older is kept."),
        },
        {
            "missingVersions": describe_schema(COUNT, "Sum of missingCount in this answer."),
            "quarantined": describe_schema(
                COUNT,
                "quarantinedCount of this answer: what was read up to completeTo is stored, or "
                "among these, unless quarantinedWithoutId is not 0.",
            ),
            "quarantinedWithoutId": describe_schema(
                COUNT,
                "Messages in quarantine that do not say which document they are about; 1000: at "
                "least as many.",
            ),
        },
    ),
    "Timeline": make_object(
        {
            "history": make_list(make_ref("Version")),
            **QUARANTINED,
            "completeness": make_ref("Completeness"),
        },
        {"nextPageToken": {"type": "string", "pattern": "^v1:"}, **DAMAGED, **FALLBACK},
    ),
    "Comparison": make_object(
        {"from": make_ref("Version"), "to": make_ref("Version"), **QUARANTINED},
        {
            "diff": make_list(make_ref("Operation")),
            **FALLBACK,
            **{name: VERSION_OPTIONAL[name] for name in ("changes", "changeCount", "nextChanges")},
        },
    ),
    "VersionAt": make_object(
        {
            **VERSION_REQUIRED,
            "time": MOMENT,
            "deleted": FLAG,
            **UNCERTAIN,
            **QUARANTINED,
            "completeness": make_ref("Completeness"),
        },
        {**VERSION_OPTIONAL, **FALLBACK},
    ),
    "FieldHistory": make_object(
        {
            "path": TEXT,
            "label": make_nullable(TEXT),
            "values": make_list(VALUE),
            **QUARANTINED,
            "completeness": make_ref("Completeness"),
        },
        {"nextPageToken": {"type": "string", "pattern": "^v1:"}, **FALLBACK},
    ),
    "Blame": make_object(
        {
            **VERSION_REQUIRED,
            "blame": make_list(LEAF),
            **QUARANTINED,
            "completeness": make_ref("Completeness"),
        },
        {
            **VERSION_OPTIONAL,
            **FALLBACK,
            "leafCount": describe_schema(COUNT, "How many there are, where blame has not all."),
            "nextLeaves": describe_schema(
                COUNT, "leavesAfter for the rest of them; absent where blame has the last."
            ),
        },
    ),
    "Application": make_object(
        {
            "time": MOMENT,
            "application": {"oneOf": [make_ref("Version"), {"type": "null"}]},
            "children": {"type": "object", "additionalProperties": make_list(make_ref("Version"))},
            "deleted": make_list(make_ref("Version")),
            "missing": describe_schema(
                make_list(make_object({**DOCUMENT_REF, "reason": ABSENCE})),
                "The application and children that existed then, or may have, "
                "although the store has no version of them from then.",
            ),
            **UNCERTAIN,
            **QUARANTINED,
            "completeness": make_ref("Completeness"),
        },
        FALLBACK,
    ),
    "SearchResults": make_object(
        {
            "results": make_list(RESULT),
            "limited": describe_schema(
                FLAG, "Too many documents have this key: these are the newest ones."
            ),
            "completeness": make_ref("Completeness"),
        },
        {"nextPageToken": {"type": "string", "pattern": "^v1:"}, **DAMAGED},
    ),
    "Fate": make_object(
        {
            "state": describe_schema(
                make_enum(*(state.value for state in trace.FateState)),
                "unknown: nothing shows that it was ever there; damaged: stored, and cannot be "
                "read.",
            ),
            "certain": describe_schema(
                FLAG, "false: stored, repeated or expired; only the sums are known."
            ),
            "at": describe_schema(make_nullable(MOMENT), "When it became so, as far as known."),
            "reason": describe_schema(
                make_nullable(make_enum(*REASONS)), "Why it is in quarantine."
            ),
            "why": describe_schema(TEXT, "The same in words."),
            "kind": make_nullable(KIND),
            "id": make_nullable(TEXT),
            "version": make_nullable(NUMBER),
            "updatedAt": describe_schema(make_nullable(MOMENT), "Of a stored version."),
            "topic": describe_schema(make_nullable(TEXT), "The message, as far as known."),
            "partition": make_nullable(COUNT),
            "offset": make_nullable(OFFSET),
            "mayBe": {
                "oneOf": [
                    make_object({"unread": make_nullable(COUNT), "lost": COUNT, "expired": COUNT}),
                    {"type": "null"},
                ],
                "description": "Of a version that was never seen: how many messages of its topics "
                "are not read yet (null: not known), were lost, or came after their retention.",
            },
        },
        FALLBACK,
    ),
    "Store": make_object(
        {
            "completeness": make_ref("Completeness"),
            "ok": describe_schema(FLAG, "Every sum adds up and no loss is unacknowledged."),
            "faults": make_list(TEXT),
            "totals": make_object({**MESSAGE_SUMS, "lag": COUNT}),
            "gaps": describe_schema(
                GAPS,
                "Versions that never arrived: the gaps that are open and how many "
                "versions they are, and the versions of closed ones that came late. "
                "lookedAt: when they were looked for last.",
            ),
            "retired": make_list(make_object({"topic": TEXT, "why": TEXT, "at": MOMENT})),
            "neverRead": describe_schema(
                make_list(TEXT), "Topics of which nothing is known, and that are not retired."
            ),
            "absent": describe_schema(
                make_list(make_object({"topic": TEXT, "askedAt": MOMENT})),
                "Topics that were never read because the brokers said that they do not exist, and "
                "when they were asked last.",
            ),
            "undeclared": describe_schema(
                make_list(TEXT),
                "Topics that were read, and that no declared kind has any more: "
                "nobody reads what comes to them.",
            ),
            "losses": describe_schema(
                make_list(LOSS),
                "The most endangered first: seconds until the broker deletes the "
                "oldest unread message, or one that comes now, if nothing more is read; until all "
                "is read; and for which a message that comes now is kept. null: never.",
            ),
            "partitions": make_list(PARTITION),
        }
    ),
    "Error": make_object(
        {
            "status": make_enum("error"),
            "error": make_object(
                {"code": TEXT, "message": TEXT, "requestId": TEXT},
                {"parameter": describe_schema(TEXT, "The parameter that is wrong.")},
            ),
        }
    ),
}
