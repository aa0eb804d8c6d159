"""Formats versions, changes and values as the JSON of answers, encoded exactly."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any

import msgspec
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.renderers import BaseRenderer

from history.catalogue.people import NamedLogin
from history.completeness.complete_to import StoreCompleteness
from history.diff import MaybeJson
from history.documents.exactjson import dumps
from history.store.quarantined_messages import OpenMessages, QuarantinedMessage
from history.store.versions import DamagedPlace
from history.timeline import (
    Absence,
    BlamedLeaf,
    FieldValue,
    Include,
    LabelledChange,
    SearchResult,
    TimelinePage,
    ValueOrigin,
    Version,
    budget,
)
from history.timeline.query import FallbackState

# missingVersions lists at most this many, the newest ones; missingCount is exact.
MISSING_LISTED = 1000
# quarantined lists at most this many, those that came last; quarantinedCount counts up to 1,000.
QUARANTINED_LISTED = 100

AnswerData = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """How to write an answer."""

    include: frozenset[Include]  # which parts of a version
    zone: tzinfo  # of times
    language: str  # of labels

    def format_moment(self, moment: datetime) -> str:
        """Format a moment in ISO 8601 with six fractional digits and the offset."""
        with suppress(OverflowError):
            moment = moment.astimezone(self.zone)
        return moment.isoformat(timespec="microseconds")

    def format_moment_or_none(self, moment: datetime | None) -> str | None:
        return None if moment is None else self.format_moment(moment)


def format_version(version: Version, output: AnswerFormat, after: int = 0) -> AnswerData:
    """Format one version; with `entity`, `diff` and `changes` only if the request includes them.

    Args:
        after: How many of the first changes to leave out.
    """
    answer: AnswerData = {"kind": version.entity.name, "id": version.id}
    if version.product_instance_id is not None:
        answer["productInstanceId"] = version.product_instance_id
    if Include.ENTITY in output.include and version.snapshot:
        answer["entity"] = msgspec.Raw(version.snapshot)
    answer |= {
        "version": version.version,
        "type": version.type.name,
        "updatedAt": output.format_moment(version.updated_at),
        "createdAt": version.created_at,
    }
    if version.entity.closed_at is not None:
        answer["closedAt"] = version.closed_at
    answer |= {**format_service(version.service), **format_author(version.author)}
    if Include.DIFF in output.include:
        answer["diff"] = version.patch
    if Include.CHANGES in output.include:
        answer |= format_changes(
            version.changes, output.language, after, None if after else version.listed
        )
    answer |= {
        "previousVersion": version.previous_version,
        **format_missing(version),
        "olderVersions": _format_missing_reason(version, version.older),
    }
    if version.old:
        answer["fromFallback"] = True
    if version.other_moment is not None:
        answer["fallbackUpdatedAt"] = output.format_moment(version.other_moment)
    return answer


def format_missing(version: Version) -> AnswerData:
    """Format which versions are missing before this one, and why."""
    return {
        "missingVersions": list(version.missing[-MISSING_LISTED:]),
        "missingCount": len(version.missing),
        "missingReason": _format_missing_reason(version, version.missing_why),
    }


def _format_missing_reason(version: Version, absence: Absence | None) -> str | None:
    """Return why versions are missing; never "never arrived" if one of them came."""
    if absence is not None and version.came:
        return Absence.QUARANTINED.value
    return absence.value if absence else None


NOTHING_MISSING: AnswerData = {"missingVersions": [], "missingCount": 0, "missingReason": None}


def format_uncertain(
    next_versions: Iterable[Version], held: Iterable[QuarantinedMessage], output: AnswerFormat
) -> AnswerData:
    """Return what a state at a moment may lack.

    Args:
        following: The first versions after the moment that have a gap before them.
        held: The messages in quarantine that may have changed the state.
    """
    entries: dict[tuple[str, str], AnswerData] = {
        (version.entity.name, version.id): {**format_missing(version), "quarantined": []}
        for version in next_versions
    }
    for message in held:
        kind_and_id = message.entity, message.id
        entry = entries.setdefault(kind_and_id, {**NOTHING_MISSING, "quarantined": []})
        if len(entry["quarantined"]) < QUARANTINED_LISTED:
            entry["quarantined"].append(_format_message(message, output))
    return {
        "uncertain": [{"kind": kind, "id": id, **entry} for (kind, id), entry in entries.items()]
    }


def format_quarantined(messages: OpenMessages, output: AnswerFormat) -> AnswerData:
    """Return the messages about what is shown that came and are in quarantine."""
    return {
        "quarantined": [
            {"kind": message.entity, "id": message.id, **_format_message(message, output)}
            for message in messages.messages[:QUARANTINED_LISTED]
        ],
        "quarantinedCount": messages.count,
    }


def _format_message(message: QuarantinedMessage, output: AnswerFormat) -> AnswerData:
    return {
        "version": message.version,
        "updatedAt": output.format_moment_or_none(message.made_at),
        "reason": message.reason,
        "readAt": output.format_moment(message.came_at),
    }


def format_service(login: NamedLogin) -> AnswerData:
    """Format the service that made a change. An unknown client id is its own name."""
    return {"clientId": login.login, "clientName": login.name}


def format_author(login: NamedLogin | None) -> AnswerData:
    """Format login, name and kind of a person. An unknown login is its own name, of kind
    `unknown`.
    """
    if login is None:
        return {"author": None, "authorName": None, "authorKind": None}
    return {"author": login.login, "authorName": login.name, "authorKind": login.kind}


class ChangeAnswer(msgspec.Struct, gc=False, rename="camel"):
    """One change. An added value has no `old`, a removed one no `new`."""

    path: str
    key_path: str
    label: str | None
    field_kind: str | None
    kind: str
    old: MaybeJson
    new: MaybeJson
    from_index: int | msgspec.UnsetType
    to_index: int | msgspec.UnsetType


def format_change(labelled_change: LabelledChange, language: str) -> ChangeAnswer:
    """Format one change with the label of its field in this language."""
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


def format_changes(
    changes: Sequence[LabelledChange], language: str, after: int, number: int | None = None
) -> AnswerData:
    """Format as many changes as one answer lists, without the first `after` ones.

    If these are not all, the answer says how many there are and where the rest begins.

    Args:
        number: How many the answer lists, if the caller knows it.
    """
    if number is None:
        candidates = changes[after : after + budget.MAX_CHANGES]
        number = budget.limit_changes([change.change for change in candidates]).number
    end = after + number
    answer: AnswerData = {
        "changes": [format_change(change, language) for change in changes[after:end]]
    }
    return answer | _format_rest(("changeCount", "nextChanges"), after, end, len(changes))


def format_leaves(leaves: Sequence[BlamedLeaf], output: AnswerFormat, after: int) -> AnswerData:
    """Format as many leaves as one answer lists. See format_changes."""
    candidates = leaves[after : after + budget.MAX_LEAVES]
    sizes = (
        len(blamed_leaf.path) + len(blamed_leaf.key_path) + len(dumps(blamed_leaf.value))
        for blamed_leaf in candidates
    )
    end = after + budget.limit_sizes(sizes).number
    answer: AnswerData = {
        "blame": [format_leaf(blamed_leaf, output) for blamed_leaf in leaves[after:end]]
    }
    return answer | _format_rest(("leafCount", "nextLeaves"), after, end, len(leaves))


def _format_rest(names: tuple[str, str], after: int, end: int, count: int) -> AnswerData:
    """Return what an answer says about a list of which it has only the entries from `after` to
    `end`.
    """
    count_name, next_name = names
    if not after and end >= count:
        return {}
    return {count_name: count} | ({next_name: end} if end < count else {})


def format_page(page: TimelinePage, output: AnswerFormat) -> AnswerData:
    """Format one page of a timeline."""
    data = {
        "history": [format_version(version, output) for version in page.versions]
    } | format_damaged(page.damaged)
    return add_next_token(data, page.next_token)


def format_damaged(places: Iterable[DamagedPlace]) -> AnswerData:
    """What a list lacks because it cannot be read; nothing where it lacks nothing."""
    damaged_versions = [
        {"kind": entity.name, "id": id, "version": key.version if key else None}
        for entity, id, key in places
    ]
    return {"damaged": damaged_versions} if damaged_versions else {}


def add_next_token(data: AnswerData, next_token: str | None) -> AnswerData:
    """Add nextPageToken to one page of a list. The last page has none."""
    return data if next_token is None else {**data, "nextPageToken": next_token}


def format_origin(origin: ValueOrigin, output: AnswerFormat) -> AnswerData:
    """Format who set a value, and when."""
    return {
        "version": origin.version,
        "type": origin.type.name,
        "updatedAt": output.format_moment(origin.updated_at),
        **format_service(origin.service),
        **format_author(origin.author),
        "exact": origin.exact,
    }


def format_leaf(leaf: BlamedLeaf, output: AnswerFormat) -> AnswerData:
    """Format a leaf of the newest snapshot and who last changed it."""
    return {
        "path": leaf.path,
        "keyPath": leaf.key_path,
        "value": leaf.value,
        "label": leaf.label.get_text(output.language) if leaf.label else None,
        **format_origin(leaf.origin, output),
    }


def format_field_value(value: FieldValue, output: AnswerFormat) -> AnswerData:
    """Format a value that a field had. Without `value`, the snapshot had no such field then."""
    answer: AnswerData = {} if value.value is msgspec.UNSET else {"value": value.value}
    return answer | {
        "since": output.format_moment(value.origin.updated_at),
        "until": output.format_moment_or_none(value.until),
        **format_origin(value.origin, output),
    }


def format_search_result(
    result: SearchResult, output: AnswerFormat, held: Sequence[QuarantinedMessage]
) -> AnswerData:
    """An entity with the id, or an application with the business key. held: the messages about it
    that are in quarantine."""
    application = {} if result.entity.alone else {"productInstanceId": result.application}
    return {
        "kind": result.entity.name,
        "id": result.id,
        **application,
        "foundBy": result.key,
        "foundIn": [{"kind": kind.name, "id": id} for kind, id in result.carriers],
        "version": result.version,
        "type": result.type.name if result.type is not None else None,
        "updatedAt": output.format_moment(result.updated_at),
        "quarantinedCount": len(held),
    }


def format_fallback(state: FallbackState | None) -> AnswerData:
    """Return the `fallback` block of an answer; nothing if no old service was asked."""
    if state is None:
        return {}
    missing = state is FallbackState.FAILED
    return {"fallback": {"state": state.value, "olderVersionsMayBeMissing": missing}}


def format_completeness(
    completeness: StoreCompleteness,
    output: AnswerFormat,
    versions: Sequence[AnswerData] | None = None,
    messages: OpenMessages | None = None,
) -> AnswerData:
    """The `completeness` block of an answer. versions: those of a timeline's page. messages: those
    in quarantine about the document or application that was asked for."""
    answer = {
        "completeTo": output.format_moment_or_none(completeness.complete_to),
        "lagMessages": completeness.lag_messages,
        "lagSeconds": completeness.lag_seconds,
        "halted": completeness.halted,
        "retentionStart": output.format_moment(completeness.retention_start),
    }
    if versions is not None:
        answer["missingVersions"] = sum(version["missingCount"] for version in versions)
    if messages is not None:
        answer["quarantined"] = messages.count
        answer["quarantinedWithoutId"] = messages.nameless
    return answer


class SingleRendererNegotiation(BaseContentNegotiation):
    """Chooses the only renderer of a view, whatever the Accept header says."""

    def select_parser(self, *_: Any) -> None:
        return None

    def select_renderer(self, _: Any, renderers: Any, *__: Any) -> tuple[BaseRenderer, str]:
        return renderers[0], renderers[0].media_type
