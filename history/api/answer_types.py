"""The types of the API's answers. Their fields are in the order of the JSON.

A view names the type of its answer in describe_call. In the JSON, the answer is the `data` of a
SuccessEnvelope.
"""

from typing import Annotated, Any, Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from history.common.answer_types import (
    Answer,
    ChangeTypeName,
    Count,
    KindName,
    Moment,
    Seconds,
    VersionNumber,
    choose_from,
)
from history.models import LabelKind, PersonKind
from history.store.quarantine_reasons import REASONS
from history.timeline import Absence
from history.timeline.query import FallbackState

D = TypeVar("D", bound=Answer)


class SuccessEnvelope(Answer, Generic[D], kw_only=True):
    """The answer to a call that succeeds."""

    status: Literal["success"]
    data: D


# The members that several answers have.
PageToken: TypeAlias = Annotated[str, Meta(pattern="^v1:")]
ClientName: TypeAlias = Annotated[
    str, Meta(description="The name of the service, or its client id if no name is known.")
]
AuthorKind: TypeAlias = Annotated[str, choose_from([*PersonKind.values, "unknown"])]
IsExact: TypeAlias = Annotated[
    bool, Meta(description="false: an older version that is not in the store may have set it.")
]
AbsenceReason: TypeAlias = Annotated[str, choose_from(reason.value for reason in Absence)]
MissingVersions: TypeAlias = Annotated[
    list[VersionNumber],
    Meta(description="The numbers between both versions that the store lacks, at most 1000."),
]
MissingReason: TypeAlias = Annotated[
    Annotated[
        str,
        choose_from(
            [Absence.NEVER_ARRIVED.value, Absence.QUARANTINED.value, Absence.UNKNOWN.value]
        ),
    ]
    | None,
    Meta(
        description="Why these versions are missing; inQuarantine: at least one of them arrived "
        "but could not be stored, see `trace`; unknown: retention removed them, or they never "
        "arrived."
    ),
]


class OperationAnswer(Answer, kw_only=True):
    """One operation of a patch, RFC 6902."""

    op: Annotated[str, choose_from(["add", "remove", "replace", "move"])]
    path: str
    from_: str | UnsetType = msgspec.field(name="from", default=UNSET)
    value: Any = UNSET


class ChangeAnswer(Answer, gc=False):
    """One change. An added value has no `old`, a removed one no `new`."""

    path: Annotated[
        str,
        Meta(description="RFC 6901, in the new snapshot; in the old one if the value was removed."),
    ]
    key_path: Annotated[
        str,
        Meta(
            description="The path with list items named by their key: /documents/[pid=4ad]/status"
        ),
    ]
    label: str | None
    field_kind: Annotated[str, choose_from(LabelKind.values)] | None
    kind: Annotated[str, choose_from(["added", "removed", "changed", "moved"])]
    old: Any = UNSET
    new: Any = UNSET
    from_index: Count | UnsetType = UNSET
    to_index: Count | UnsetType = UNSET


Changes: TypeAlias = Annotated[
    list[ChangeAnswer],
    Meta(description="The first changes, at most 1000. diff always has all of them."),
]
ChangeCount: TypeAlias = Annotated[
    Count, Meta(description="The number of all changes; absent if changes has all of them.")
]
NextChanges: TypeAlias = Annotated[
    Count,
    Meta(description="changesAfter for the next changes; absent if changes has the last one."),
]


class DocumentRef(Answer, kw_only=True):
    """A document by its kind and id."""

    kind: KindName
    id: str


QuarantinedVersion: TypeAlias = Annotated[
    VersionNumber | None, Meta(description="null: the message does not say its version.")
]
QuarantinedUpdatedAt: TypeAlias = Annotated[
    Moment | None, Meta(description="updatedAt of the version; null: it cannot be read.")
]
QuarantinedReason: TypeAlias = Annotated[
    str, choose_from(REASONS), Meta(description="Why the message could not be stored.")
]
QuarantinedReadAt: TypeAlias = Annotated[Moment, Meta(description="When Annals read the message.")]


class QuarantinedEntry(Answer, kw_only=True):
    """A message in quarantine about the document of the UncertainDocument that lists it."""

    version: QuarantinedVersion
    updated_at: QuarantinedUpdatedAt
    reason: QuarantinedReason
    read_at: QuarantinedReadAt


class QuarantinedDocumentEntry(DocumentRef, kw_only=True):
    """A message in quarantine, and the document that it is about."""

    version: QuarantinedVersion
    updated_at: QuarantinedUpdatedAt
    reason: QuarantinedReason
    read_at: QuarantinedReadAt


QuarantinedMessages: TypeAlias = Annotated[
    list[QuarantinedDocumentEntry],
    Meta(
        description="Messages about this document, or about this application and its children, "
        "that are in quarantine: they arrived and could not be stored. Their changes are not in "
        "the answer. Their versions may be newer or older than the stored versions, or between "
        "them. The message that arrived last comes first; at most 100."
    ),
]
QuarantinedCount: TypeAlias = Annotated[
    Count, Meta(description="The number of these messages; 1000: at least as many.")
]


class UncertainDocument(DocumentRef, kw_only=True):
    """A document for which the answer might show a wrong version at the requested moment."""

    missing_versions: MissingVersions
    missing_count: Count
    missing_reason: MissingReason
    quarantined: Annotated[
        list[QuarantinedEntry],
        Meta(description="Messages in quarantine that may have come before the moment."),
    ]


UncertainDocuments: TypeAlias = Annotated[
    list[UncertainDocument],
    Meta(
        description="The documents that may have had another state at the moment: the next "
        "versions after the one that is shown are missing or in quarantine, and may have been made "
        "before the moment."
    ),
]


class DamagedVersion(DocumentRef, kw_only=True):
    """A damaged version or document. The answer lacks it because Annals cannot read it."""

    version: VersionNumber | None


DamagedVersions: TypeAlias = Annotated[
    list[DamagedVersion],
    Meta(
        description="The damaged versions, which cannot be read. The list lacks them, and also "
        "the versions that would be compared with them. version is null if the whole document "
        "cannot be read. Absent if the list lacks nothing."
    ),
]


class FallbackOutcome(Answer, kw_only=True):
    """Whether the old service was asked for versions, and with what result."""

    state: Annotated[str, choose_from(state.value for state in FallbackState)]
    older_versions_may_be_missing: Annotated[
        bool,
        Meta(
            description="true: the old service failed. So the answer may lack versions that only "
            "the old service has."
        ),
    ]


Fallback: TypeAlias = Annotated[
    FallbackOutcome,
    Meta(description="How the old service answered; absent if it was not asked."),
]


class CompletenessAnswer(Answer, kw_only=True):
    """How complete the store is for the kinds that the call asks about."""

    complete_to: Annotated[
        Moment | None,
        Meta(description="Everything sent up to this moment has been read; null: not known."),
    ]
    lag_messages: Count | None
    lag_seconds: Seconds | None
    halted: Annotated[
        bool, Meta(description="true: reading has stopped because of too many bad messages.")
    ]
    retention_start: Annotated[
        Moment, Meta(description="Versions before this moment are not kept.")
    ]
    missing_versions: (
        Annotated[Count, Meta(description="Sum of missingCount in this answer.")] | UnsetType
    ) = UNSET
    quarantined: (
        Annotated[
            Count,
            Meta(
                description="quarantinedCount of this answer. Each message up to completeTo is "
                "stored or counted here; if quarantinedWithoutId is not 0, it may be counted there."
            ),
        ]
        | UnsetType
    ) = UNSET
    quarantined_without_id: (
        Annotated[
            Count,
            Meta(
                description="Messages in quarantine that do not say which document they are about; "
                "1000: at least as many."
            ),
        ]
        | UnsetType
    ) = UNSET


CreatedAt: TypeAlias = Annotated[
    Any, Meta(description="When the document was created, exactly as the snapshot says it.")
]
ClosedAt: TypeAlias = Annotated[
    Any,
    Meta(description="When the document was closed, as the snapshot says it, if its kind has it."),
]
Snapshot: TypeAlias = Annotated[msgspec.Raw, Meta(description="The snapshot, with exact numbers.")]
Patch: TypeAlias = Annotated[
    list[OperationAnswer] | None,
    Meta(description="RFC 6902: turns the snapshot of previousVersion into entity."),
]
PreviousVersion: TypeAlias = Annotated[
    VersionNumber | None,
    Meta(description="The next lower version in the store; null if there is none."),
]
OlderVersions: TypeAlias = Annotated[
    AbsenceReason | None,
    Meta(
        description="Why the store has no older version than this one; null if it has one, or if "
        "none was ever made."
    ),
]
FromFallback: TypeAlias = Annotated[
    bool,
    Meta(
        description="The store does not have this version; the old service does.",
        extra_json_schema={"const": True},
    ),
]
FallbackUpdatedAt: TypeAlias = Annotated[
    Moment, Meta(description="The moment of this version in the old service, if it is another one.")
]


class VersionMembers(DocumentRef, kw_only=True):
    """One version, and how it differs from the previous version.

    VersionAtAnswer has the same fields, but does not inherit them: it needs them in another order.
    """

    product_instance_id: str | UnsetType = UNSET
    entity: Snapshot | UnsetType = UNSET
    version: VersionNumber
    type: ChangeTypeName
    updated_at: Moment
    created_at: CreatedAt
    closed_at: ClosedAt = UNSET
    client_id: str
    client_name: ClientName
    author: str | None
    author_name: str | None
    author_kind: AuthorKind | None
    diff: Patch | UnsetType = UNSET
    changes: Changes | UnsetType = UNSET
    change_count: ChangeCount | UnsetType = UNSET
    next_changes: NextChanges | UnsetType = UNSET
    previous_version: PreviousVersion
    missing_versions: MissingVersions
    missing_count: Count
    missing_reason: MissingReason
    older_versions: OlderVersions
    from_fallback: FromFallback | UnsetType = UNSET
    fallback_updated_at: FallbackUpdatedAt | UnsetType = UNSET


class VersionAnswer(VersionMembers, kw_only=True):
    """One version. In a list of versions, `fallback` and `quarantined` are absent."""

    fallback: Fallback | UnsetType = UNSET
    quarantined: QuarantinedMessages | UnsetType = UNSET
    quarantined_count: QuarantinedCount | UnsetType = UNSET


class TimelineAnswer(Answer, kw_only=True):
    """A page of a timeline."""

    history: list[VersionAnswer]
    damaged: DamagedVersions | UnsetType = UNSET
    next_page_token: PageToken | UnsetType = UNSET
    fallback: Fallback | UnsetType = UNSET
    quarantined: QuarantinedMessages
    quarantined_count: QuarantinedCount
    completeness: CompletenessAnswer


class ChangedVersionAnswer(VersionMembers, kw_only=True):
    """A version in a list of changes, with the application that it belongs to."""

    fallback: Fallback | UnsetType = UNSET
    application_id: Annotated[
        str | None, Meta(description="null: the document does not belong to an application.")
    ]
    application_title: Annotated[
        str | None, Meta(description="null: the application has no title, or is not in the store.")
    ]


class ChangesAnswer(Answer, kw_only=True):
    """A page of the changes of all documents in a span of time."""

    from_: Moment = msgspec.field(name="from")
    to: Moment
    history: list[ChangedVersionAnswer]
    complete: Annotated[
        bool,
        Meta(description="false: the page ended before it was full; go on with its token."),
    ]
    damaged: DamagedVersions | UnsetType = UNSET
    next_page_token: PageToken | UnsetType = UNSET
    fallback: Fallback | UnsetType = UNSET
    completeness: CompletenessAnswer


class ComparisonAnswer(Answer, kw_only=True):
    """Two versions and how they differ."""

    from_: VersionAnswer = msgspec.field(name="from")
    to: VersionAnswer
    diff: list[OperationAnswer] | UnsetType = UNSET
    changes: Changes | UnsetType = UNSET
    change_count: ChangeCount | UnsetType = UNSET
    next_changes: NextChanges | UnsetType = UNSET
    fallback: Fallback | UnsetType = UNSET
    quarantined: QuarantinedMessages
    quarantined_count: QuarantinedCount


class VersionAtAnswer(Answer, kw_only=True):
    """The version that was current at a moment."""

    time: Moment
    # The members of VersionMembers are repeated here: inherited members would come before `time`.
    kind: KindName
    id: str
    product_instance_id: str | UnsetType = UNSET
    entity: Snapshot | UnsetType = UNSET
    version: VersionNumber
    type: ChangeTypeName
    updated_at: Moment
    created_at: CreatedAt
    closed_at: ClosedAt = UNSET
    client_id: str
    client_name: ClientName
    author: str | None
    author_name: str | None
    author_kind: AuthorKind | None
    diff: Patch | UnsetType = UNSET
    changes: Changes | UnsetType = UNSET
    change_count: ChangeCount | UnsetType = UNSET
    next_changes: NextChanges | UnsetType = UNSET
    previous_version: PreviousVersion
    missing_versions: MissingVersions
    missing_count: Count
    missing_reason: MissingReason
    older_versions: OlderVersions
    from_fallback: FromFallback | UnsetType = UNSET
    fallback_updated_at: FallbackUpdatedAt | UnsetType = UNSET
    deleted: bool
    uncertain: UncertainDocuments
    fallback: Fallback | UnsetType = UNSET
    quarantined: QuarantinedMessages
    quarantined_count: QuarantinedCount
    completeness: CompletenessAnswer


class FieldValueEntry(Answer, kw_only=True):
    """A value that the field had, and the version that set it."""

    value: Annotated[Any, Meta(description="Absent: the field did not exist then.")] = UNSET
    since: Moment
    until: Moment | None
    version: VersionNumber
    type: ChangeTypeName
    updated_at: Moment
    client_id: str
    client_name: ClientName
    author: str | None
    author_name: str | None
    author_kind: AuthorKind | None
    exact: IsExact


class FieldHistoryAnswer(Answer, kw_only=True):
    """The values of a field, newest first."""

    path: str
    label: str | None
    values: list[FieldValueEntry]
    next_page_token: PageToken | UnsetType = UNSET
    fallback: Fallback | UnsetType = UNSET
    quarantined: QuarantinedMessages
    quarantined_count: QuarantinedCount
    completeness: CompletenessAnswer


class BlamedLeafEntry(Answer, kw_only=True):
    """A leaf of the snapshot, and the version that last changed it."""

    path: str
    key_path: str
    value: Any
    label: str | None
    version: VersionNumber
    type: ChangeTypeName
    updated_at: Moment
    client_id: str
    client_name: ClientName
    author: str | None
    author_name: str | None
    author_kind: AuthorKind | None
    exact: IsExact


class BlameAnswer(VersionMembers, kw_only=True):
    """The newest version, and who last changed each leaf of it."""

    blame: list[BlamedLeafEntry]
    leaf_count: (
        Annotated[
            Count, Meta(description="The number of all leaves; absent if blame has all of them.")
        ]
        | UnsetType
    ) = UNSET
    next_leaves: (
        Annotated[
            Count,
            Meta(description="leavesAfter for the next leaves; absent if blame has the last one."),
        ]
        | UnsetType
    ) = UNSET
    fallback: Fallback | UnsetType = UNSET
    quarantined: QuarantinedMessages
    quarantined_count: QuarantinedCount
    completeness: CompletenessAnswer


class MissingDocument(DocumentRef, kw_only=True):
    """A document that may have existed at the requested moment, but has no stored version then."""

    reason: AbsenceReason


class ApplicationAnswer(Answer, kw_only=True):
    """An application and its children at a moment."""

    time: Moment
    application: VersionAnswer | None
    children: dict[str, list[VersionAnswer]]
    deleted: list[VersionAnswer]
    missing: Annotated[
        list[MissingDocument],
        Meta(
            description="The application or children that existed at the moment, or may have "
            "existed, and of which the store has no version from then."
        ),
    ]
    uncertain: UncertainDocuments
    fallback: Fallback | UnsetType = UNSET
    quarantined: QuarantinedMessages
    quarantined_count: QuarantinedCount
    completeness: CompletenessAnswer


class SearchResultEntry(DocumentRef, kw_only=True):
    """One search result: a document found by its id, or an application found by a business key."""

    product_instance_id: str | UnsetType = UNSET
    found_by: Annotated[
        str, Meta(description="What was searched: id, or the name of a business key.")
    ]
    found_in: Annotated[
        list[DocumentRef],
        Meta(description="The documents with the business key; empty if found by id."),
    ]
    version: Annotated[
        VersionNumber | None,
        Meta(description="The newest version; null if the store has only children."),
    ]
    type: ChangeTypeName | None
    updated_at: Moment
    quarantined_count: Annotated[
        Count,
        Meta(
            description="How many messages about the document and its children are in quarantine."
        ),
    ]


class SearchResultsAnswer(Answer, kw_only=True):
    """A page of search results."""

    results: list[SearchResultEntry]
    limited: Annotated[
        bool, Meta(description="true: too many documents have the key; only the newest are here.")
    ]
    damaged: DamagedVersions | UnsetType = UNSET
    next_page_token: PageToken | UnsetType = UNSET
    completeness: CompletenessAnswer
