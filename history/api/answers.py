"""Makes the API's answers from versions, changes and values, in the format of the request."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any, NamedTuple, cast

import msgspec
from msgspec import UNSET, UnsetType
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.renderers import BaseRenderer

from history.api.answer_types import (
    BlamedLeafEntry,
    ChangeAnswer,
    CompletenessAnswer,
    DamagedVersion,
    DocumentRef,
    FallbackOutcome,
    FieldValueEntry,
    OperationAnswer,
    QuarantinedDocumentEntry,
    QuarantinedEntry,
    SearchResultEntry,
    UncertainDocument,
    VersionAnswer,
    VersionMembers,
)
from history.completeness.complete_to import StoreCompleteness
from history.diff import Operation
from history.documents.exactjson import dumps
from history.store.quarantined_messages import OpenMessages, QuarantinedMessage
from history.store.versions import DamagedRef
from history.timeline import (
    Absence,
    BlamedLeaf,
    FieldValue,
    Include,
    LabelledChange,
    SearchResult,
    ValueOrigin,
    Version,
    budget,
)
from history.timeline.query import FallbackState

# How many version numbers missingVersions lists, the newest ones. missingCount counts all.
MISSING_LISTED = 1000
# How many messages `quarantined` lists, the latest ones. quarantinedCount counts up to 1,000.
QUARANTINED_LISTED = 100


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """The format in which a request wants its answer."""

    include: frozenset[Include]  # the parts of a version to include
    zone: tzinfo  # the zone of all times
    language: str  # the language of labels

    def format_moment(self, moment: datetime) -> str:
        """Format a moment in ISO 8601 with six fractional digits and the offset."""
        with suppress(OverflowError):
            moment = moment.astimezone(self.zone)
        return moment.isoformat(timespec="microseconds")

    def format_moment_or_none(self, moment: datetime | None) -> str | None:
        return None if moment is None else self.format_moment(moment)


def make_version(version: Version, output: AnswerFormat, after: int = 0) -> VersionAnswer:
    """Make the answer for one version.

    The answer has `entity`, `diff` and `changes` only if the request includes them.

    Args:
        after: How many changes to skip at the beginning.
    """
    include, author = output.include, version.author
    answer = VersionAnswer(
        kind=version.entity.name,
        id=version.id,
        version=version.version,
        type=version.type.name,
        updated_at=output.format_moment(version.updated_at),
        created_at=version.created_at,
        client_id=version.service.login,
        client_name=version.service.name,
        author=author.login if author else None,
        author_name=author.name if author else None,
        author_kind=author.kind if author else None,
        previous_version=version.previous_version,
        missing_versions=_list_missing(version),
        missing_count=len(version.missing),
        missing_reason=_get_absence_reason(version, version.missing_reason),
        older_versions=_get_absence_reason(version, version.nothing_older_reason),
    )
    if version.product_instance_id is not None:
        answer.product_instance_id = version.product_instance_id
    if Include.ENTITY in include and version.snapshot:
        answer.entity = msgspec.Raw(version.snapshot)
    if version.entity.closed_at is not None:
        answer.closed_at = version.closed_at
    if Include.DIFF in include:
        answer.diff = None if version.patch is None else make_operations(version.patch)
    if Include.CHANGES in include:
        listed = list_changes(
            version.changes, output.language, after, None if after else version.listed_count
        )
        answer.changes, answer.change_count, answer.next_changes = listed
    if version.is_from_old_service:
        answer.from_fallback = True
    if version.old_service_moment is not None:
        answer.fallback_updated_at = output.format_moment(version.old_service_moment)
    return answer


def copy_members(version: VersionAnswer) -> dict[str, Any]:
    """Return the fields of `version` that VersionMembers declares, by name.

    They are arguments for answers that have these fields and more, such as BlameAnswer.
    """
    return {name: getattr(version, name) for name in VersionMembers.__struct_fields__}


def _list_missing(version: Version) -> list[int]:
    return list(version.missing[-MISSING_LISTED:])


def _get_absence_reason(version: Version, absence: Absence | None) -> str | None:
    """Return why versions before this version are missing, as a word of the API.

    Args:
        absence: Why the store lacks versions before this version. None: it lacks none.

    Returns:
        The word for "in quarantine" if quarantine has a message with one of the missing versions,
        otherwise the word for `absence`. None if `absence` is None.
    """
    if absence is not None and version.quarantined:
        return Absence.QUARANTINED.value
    return absence.value if absence else None


def make_operations(patch: list[Operation]) -> list[OperationAnswer]:
    """Cast the operations of the patch to the type of an answer's field, without a copy."""
    return cast(list[OperationAnswer], patch)


class ListedChanges(NamedTuple):
    """The changes that one answer lists, and whether there are more changes."""

    changes: list[ChangeAnswer]
    change_count: int | UnsetType  # the number of all changes; UNSET if all are listed
    next_changes: int | UnsetType  # the index of the next change; UNSET if the last is listed


def list_changes(
    changes: Sequence[LabelledChange], language: str, after: int, number: int | None = None
) -> ListedChanges:
    """Return the changes to list in one answer, beginning at the index `after`.

    Args:
        after: How many changes to skip at the beginning.
        number: How many changes to list. None: as many as fit into one answer.
    """
    if number is None:
        candidates = changes[after : after + budget.MAX_CHANGES]
        number = budget.limit_changes([change.change for change in candidates]).number
    end = after + number
    return ListedChanges(
        [make_change(change, language) for change in changes[after:end]],
        *_count_rest(after, end, len(changes)),
    )


def make_change(labelled_change: LabelledChange, language: str) -> ChangeAnswer:
    """Make the answer for one change, with the label of its field in this language."""
    change, label = labelled_change.change, labelled_change.label
    return ChangeAnswer(
        change.path,
        change.key_path,
        label.get_text(language) if label else None,
        label.kind if label else None,
        change.kind,
        change.old,
        change.new,
        change.from_index,
        change.to_index,
    )


class ListedLeaves(NamedTuple):
    """The leaves of a snapshot that one answer of blame lists, and whether there are more leaves.

    A leaf is a value that is not split further, for example a text. See SnapshotLeaf.
    """

    leaves: list[BlamedLeafEntry]
    leaf_count: int | UnsetType  # the number of all leaves; UNSET if all are listed
    next_leaves: int | UnsetType  # the index of the next leaf; UNSET if the last is listed


def list_leaves(leaves: Sequence[BlamedLeaf], output: AnswerFormat, after: int) -> ListedLeaves:
    """List as many leaves as fit into one answer.

    Args:
        after: How many leaves to skip at the beginning.
    """
    candidates = leaves[after : after + budget.MAX_LEAVES]
    sizes = (
        len(blamed_leaf.path) + len(blamed_leaf.key_path) + len(dumps(blamed_leaf.value))
        for blamed_leaf in candidates
    )
    end = after + budget.limit_sizes(sizes).number
    return ListedLeaves(
        [_make_leaf(blamed_leaf, output) for blamed_leaf in leaves[after:end]],
        *_count_rest(after, end, len(leaves)),
    )


def _count_rest(after: int, end: int, count: int) -> tuple[int | UnsetType, int | UnsetType]:
    """Return the two numbers that tell a client whether a list has more entries than the answer.

    Args:
        after: The index of the first entry in the answer.
        end: The index after the last entry in the answer.
        count: The number of all entries.

    Returns:
        1. The number of all entries; UNSET if the answer has all entries.
        2. The index of the first entry after those in the answer; UNSET if there is none.
    """
    if not after and end >= count:
        return UNSET, UNSET
    return count, end if end < count else UNSET


def _get_origin_members(origin: ValueOrigin, output: AnswerFormat) -> dict[str, Any]:
    """Return the members of an answer that say which version set a value."""
    author = origin.author
    return {
        "version": origin.version,
        "type": origin.type.name,
        "updated_at": output.format_moment(origin.updated_at),
        "client_id": origin.service.login,
        "client_name": origin.service.name,
        "author": author.login if author else None,
        "author_name": author.name if author else None,
        "author_kind": author.kind if author else None,
        "exact": origin.exact,
    }


def _make_leaf(leaf: BlamedLeaf, output: AnswerFormat) -> BlamedLeafEntry:
    return BlamedLeafEntry(
        path=leaf.path,
        key_path=leaf.key_path,
        value=leaf.value,
        label=leaf.label.get_text(output.language) if leaf.label else None,
        **_get_origin_members(leaf.origin, output),
    )


def make_field_value(value: FieldValue, output: AnswerFormat) -> FieldValueEntry:
    """Make the answer for a value that a field had.

    If the snapshot did not have the field at the time, the answer has no `value`.
    """
    origin = _get_origin_members(value.origin, output)
    return FieldValueEntry(
        value=value.value,
        since=origin["updated_at"],
        until=output.format_moment_or_none(value.until),
        **origin,
    )


def make_page_token(next_token: str | None) -> str | UnsetType:
    """Return the nextPageToken of a page; UNSET for the last page."""
    return UNSET if next_token is None else next_token


def list_damaged(places: Iterable[DamagedRef]) -> list[DamagedVersion] | UnsetType:
    """Return the versions that a list leaves out because they are damaged; UNSET if none are."""
    return [
        DamagedVersion(
            kind=place.entity.name,
            id=place.id,
            version=place.key.version if place.key else None,
        )
        for place in places
    ] or UNSET


def list_uncertain(
    next_versions: Iterable[Version],
    quarantined: Iterable[QuarantinedMessage],
    output: AnswerFormat,
) -> list[UncertainDocument]:
    """Return the documents for which the answer might show a wrong version at a moment.

    Args:
        next_versions: For each document with missing versions around the moment, the first stored
            version after them.
        quarantined: The messages in quarantine that might contain versions before the moment.
    """
    documents = {
        (version.entity.name, version.id): UncertainDocument(
            kind=version.entity.name,
            id=version.id,
            missing_versions=_list_missing(version),
            missing_count=len(version.missing),
            missing_reason=_get_absence_reason(version, version.missing_reason),
            quarantined=[],
        )
        for version in next_versions
    }
    for message in quarantined:
        kind_and_id = message.entity, message.id
        if kind_and_id not in documents:
            documents[kind_and_id] = UncertainDocument(
                kind=message.entity,
                id=message.id,
                missing_versions=[],
                missing_count=0,
                missing_reason=None,
                quarantined=[],
            )
        if len(documents[kind_and_id].quarantined) < QUARANTINED_LISTED:
            documents[kind_and_id].quarantined.append(
                QuarantinedEntry(
                    version=message.version,
                    updated_at=output.format_moment_or_none(message.made_at),
                    reason=message.reason,
                    read_at=output.format_moment(message.came_at),
                )
            )
    return list(documents.values())


def list_quarantined(
    messages: OpenMessages, output: AnswerFormat
) -> list[QuarantinedDocumentEntry]:
    """Return the field `quarantined` of an answer, with at most QUARANTINED_LISTED messages."""
    return [
        QuarantinedDocumentEntry(
            kind=message.entity,
            id=message.id,
            version=message.version,
            updated_at=output.format_moment_or_none(message.made_at),
            reason=message.reason,
            read_at=output.format_moment(message.came_at),
        )
        for message in messages.messages[:QUARANTINED_LISTED]
    ]


def make_search_result(
    result: SearchResult, output: AnswerFormat, quarantined: Sequence[QuarantinedMessage]
) -> SearchResultEntry:
    """Make the answer for one result of a search.

    Args:
        quarantined: The messages about the document that are in quarantine.
    """
    return SearchResultEntry(
        kind=result.entity.name,
        id=result.id,
        product_instance_id=UNSET if result.application is None else result.application,
        found_by=result.key,
        found_in=[
            DocumentRef(kind=carrier.entity.name, id=carrier.id) for carrier in result.carriers
        ],
        version=result.version,
        type=result.type.name if result.type is not None else None,
        updated_at=output.format_moment(result.updated_at),
        quarantined_count=len(quarantined),
    )


def make_fallback(state: FallbackState | None) -> FallbackOutcome | UnsetType:
    """Return the `fallback` of an answer; UNSET if the old service was not asked."""
    if state is None:
        return UNSET
    return FallbackOutcome(
        state=state.value, older_versions_may_be_missing=state is FallbackState.FAILED
    )


def make_completeness(
    completeness: StoreCompleteness,
    output: AnswerFormat,
    versions: Sequence[VersionMembers] | None = None,
    messages: OpenMessages | None = None,
) -> CompletenessAnswer:
    """Make the `completeness` of an answer.

    Args:
        versions: The versions on a page of a timeline or of changes; None for other answers.
        messages: The messages in quarantine about the requested document; None if the answer does
            not count them.
    """
    return CompletenessAnswer(
        complete_to=output.format_moment_or_none(completeness.complete_to),
        lag_messages=completeness.lag_messages,
        lag_seconds=completeness.lag_seconds,
        halted=completeness.halted,
        retention_start=output.format_moment(completeness.retention_start),
        missing_versions=(
            UNSET if versions is None else sum(version.missing_count for version in versions)
        ),
        quarantined=UNSET if messages is None else messages.count,
        quarantined_without_id=UNSET if messages is None else messages.nameless,
    )


class SingleRendererNegotiation(BaseContentNegotiation):
    """Chooses the only renderer that a view has, and ignores the header Accept."""

    def select_parser(self, *_: Any) -> None:
        return None

    def select_renderer(self, _: Any, renderers: Any, *__: Any) -> tuple[BaseRenderer, str]:
        return renderers[0], renderers[0].media_type
