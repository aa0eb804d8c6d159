"""The answers of the API: versions, changes and values as JSON, encoded exactly."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any

import msgspec
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.renderers import BaseRenderer

from history.complete_to import Completeness
from history.diff import Maybe
from history.documents.exactjson import dumps
from history.held_messages import OpenMessages, Quarantined
from history.people import Author
from history.timeline import (
    Absence,
    BlamedLeaf,
    FieldValue,
    Found,
    Include,
    LabelledChange,
    Origin,
    Page,
    Version,
    budget,
)
from history.timeline.query import AskedState
from history.versions import DamagedPlace

# missingVersions lists at most this many, the newest ones; missingCount is exact.
MISSING_LISTED = 1000
# quarantined lists at most this many, those that came last; quarantinedCount counts up to 1,000.
QUARANTINED_LISTED = 100

Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """How to write an answer: parts of a version, the zone of times, the language of labels."""

    include: frozenset[Include]
    zone: tzinfo
    language: str

    def moment(self, moment: datetime) -> str:
        """ISO 8601 with six fractional digits and the offset."""
        with suppress(OverflowError):
            moment = moment.astimezone(self.zone)
        return moment.isoformat(timespec="microseconds")

    def moment_or_none(self, moment: datetime | None) -> str | None:
        return None if moment is None else self.moment(moment)


def version(found: Version, output: AnswerFormat, after: int = 0) -> Answer:
    """One version; `entity`, `diff` and `changes` only if the request includes them. after: without
    this many of the first changes."""
    answer: Answer = {"kind": found.entity.name, "id": found.id}
    if found.product_instance_id is not None:
        answer["productInstanceId"] = found.product_instance_id
    if Include.ENTITY in output.include and found.snapshot:
        answer["entity"] = msgspec.Raw(found.snapshot)
    answer |= {
        "version": found.version,
        "type": found.type.name,
        "updatedAt": output.moment(found.updated_at),
        "createdAt": found.created_at,
    }
    if found.entity.closed_at is not None:
        answer["closedAt"] = found.closed_at
    answer |= {**service(found.service), **author(found.author)}
    if Include.DIFF in output.include:
        answer["diff"] = found.patch
    if Include.CHANGES in output.include:
        answer |= changes(found.changes, output.language, after, None if after else found.listed)
    answer |= {
        "previousVersion": found.previous_version,
        **missing(found),
        "olderVersions": _why(found, found.older),
    }
    if found.old:
        answer["fromFallback"] = True
    if found.other_moment is not None:
        answer["fallbackUpdatedAt"] = output.moment(found.other_moment)
    return answer


def missing(found: Version) -> Answer:
    """Which versions are missing before this one, and why."""
    return {
        "missingVersions": list(found.missing[-MISSING_LISTED:]),
        "missingCount": len(found.missing),
        "missingReason": _why(found, found.missing_why),
    }


def _why(found: Version, why: Absence | None) -> str | None:
    """Why they are missing, but never "never arrived" if one of them came."""
    if why is not None and found.came:
        return Absence.QUARANTINED.value
    return why.value if why else None


NOTHING_MISSING: Answer = {"missingVersions": [], "missingCount": 0, "missingReason": None}


def uncertain(
    following: Iterable[Version], held: Iterable[Quarantined], output: AnswerFormat
) -> Answer:
    """Return what a state at a moment may lack.

    Args:
        following: The first versions after the moment that have a gap before them.
        held: The messages in quarantine that may have changed the state.
    """
    found: dict[tuple[str, str], Answer] = {
        (each.entity.name, each.id): {**missing(each), "quarantined": []} for each in following
    }
    for message in held:
        place = message.entity, message.id
        entry = found.setdefault(place, {**NOTHING_MISSING, "quarantined": []})
        if len(entry["quarantined"]) < QUARANTINED_LISTED:
            entry["quarantined"].append(_held(message, output))
    return {"uncertain": [{"kind": kind, "id": id, **its} for (kind, id), its in found.items()]}


def quarantined(found: OpenMessages, output: AnswerFormat) -> Answer:
    """Return the messages about what is shown that came and are in quarantine."""
    return {
        "quarantined": [
            {"kind": each.entity, "id": each.id, **_held(each, output)}
            for each in found.messages[:QUARANTINED_LISTED]
        ],
        "quarantinedCount": found.count,
    }


def _held(message: Quarantined, output: AnswerFormat) -> Answer:
    return {
        "version": message.version,
        "updatedAt": output.moment_or_none(message.made_at),
        "reason": message.reason,
        "readAt": output.moment(message.came_at),
    }


def service(found: Author) -> Answer:
    """The service that made a change; an unknown client id is its own name."""
    return {"clientId": found.login, "clientName": found.name}


def author(who: Author | None) -> Answer:
    """Login, name and kind; an unknown login is its own name, its kind is `unknown`."""
    if who is None:
        return {"author": None, "authorName": None, "authorKind": None}
    return {"author": who.login, "authorName": who.name, "authorKind": who.kind}


class ChangeAnswer(msgspec.Struct, gc=False, rename="camel"):
    """One change. An added value has no `old`, a removed one no `new`."""

    path: str
    key_path: str
    label: str | None
    field_kind: str | None
    kind: str
    old: Maybe
    new: Maybe
    from_index: int | msgspec.UnsetType
    to_index: int | msgspec.UnsetType


def change(found: LabelledChange, language: str) -> ChangeAnswer:
    """One change, with the label of its field in this language."""
    plain, label = found.change, found.label
    return ChangeAnswer(
        plain.path,
        plain.key_path,
        label.text(language) if label else None,
        label.kind if label else None,
        plain.kind,
        plain.old,
        plain.new,
        plain.from_index,
        plain.to_index,
    )


def changes(
    found: Sequence[LabelledChange], language: str, after: int, number: int | None = None
) -> Answer:
    """As many changes as one answer lists, without this many of the first ones. If not all: how
    many, and where the rest begins. number: how many it lists, if the caller knows."""
    if number is None:
        rest = found[after : after + budget.MOST_CHANGES]
        number = budget.listed([each.change for each in rest]).number
    end = after + number
    answer: Answer = {"changes": [change(each, language) for each in found[after:end]]}
    return answer | _rest(("changeCount", "nextChanges"), after, end, len(found))


def leaves(found: Sequence[BlamedLeaf], output: AnswerFormat, after: int) -> Answer:
    """As many leaves as one answer lists, as in changes()."""
    rest = found[after : after + budget.MOST_LEAVES]
    sizes = (len(each.path) + len(each.key_path) + len(dumps(each.value)) for each in rest)
    end = after + budget.fitting(sizes).number
    answer: Answer = {"blame": [leaf(each, output) for each in found[after:end]]}
    return answer | _rest(("leafCount", "nextLeaves"), after, end, len(found))


def _rest(names: tuple[str, str], after: int, end: int, count: int) -> Answer:
    """What an answer says of a list of which it has only the part from `after` to `end`."""
    length, following = names
    if not after and end >= count:
        return {}
    return {length: count} | ({following: end} if end < count else {})


def page(found: Page, output: AnswerFormat) -> Answer:
    """A page of a timeline."""
    data = {"history": [version(each, output) for each in found.versions]} | damaged(found.damaged)
    return paged(data, found.next_token)


def damaged(found: Iterable[DamagedPlace]) -> Answer:
    """What a list lacks because it cannot be read; nothing where it lacks nothing."""
    listed = [
        {"kind": entity.name, "id": id, "version": key.version if key else None}
        for entity, id, key in found
    ]
    return {"damaged": listed} if listed else {}


def paged(data: Answer, next_token: str | None) -> Answer:
    """A page of any list; the last one has no nextPageToken."""
    return data if next_token is None else {**data, "nextPageToken": next_token}


def origin(found: Origin, output: AnswerFormat) -> Answer:
    """Who set a value, and when."""
    return {
        "version": found.version,
        "type": found.type.name,
        "updatedAt": output.moment(found.updated_at),
        **service(found.service),
        **author(found.author),
        "exact": found.exact,
    }


def leaf(found: BlamedLeaf, output: AnswerFormat) -> Answer:
    """A leaf of the newest snapshot and who last changed it."""
    return {
        "path": found.path,
        "keyPath": found.key_path,
        "value": found.value,
        "label": found.label.text(output.language) if found.label else None,
        **origin(found.origin, output),
    }


def field_value(value: FieldValue, output: AnswerFormat) -> Answer:
    """A value that a field had. Without `value`, the snapshot had no such field then."""
    answer: Answer = {} if value.value is msgspec.UNSET else {"value": value.value}
    return answer | {
        "since": output.moment(value.origin.updated_at),
        "until": output.moment_or_none(value.until),
        **origin(value.origin, output),
    }


def found(entity: Found, output: AnswerFormat, held: Sequence[Quarantined]) -> Answer:
    """An entity with the id, or an application with the business key. held: the messages about it
    that are in quarantine."""
    application = {} if entity.entity.alone else {"productInstanceId": entity.application}
    return {
        "kind": entity.entity.name,
        "id": entity.id,
        **application,
        "foundBy": entity.key,
        "foundIn": [{"kind": kind.name, "id": id} for kind, id in entity.carriers],
        "version": entity.version,
        "type": entity.type.name if entity.type is not None else None,
        "updatedAt": output.moment(entity.updated_at),
        "quarantinedCount": len(held),
    }


def fallback(state: AskedState | None) -> Answer:
    """The `fallback` block of an answer; none where no old service was asked."""
    if state is None:
        return {}
    missing = state is AskedState.FAILED
    return {"fallback": {"state": state.value, "olderVersionsMayBeMissing": missing}}


def completeness(
    found: Completeness,
    output: AnswerFormat,
    versions: Sequence[Answer] | None = None,
    messages: OpenMessages | None = None,
) -> Answer:
    """The `completeness` block of an answer. versions: those of a timeline's page. messages: those
    in quarantine about the document or application that was asked for."""
    answer = {
        "completeTo": output.moment_or_none(found.complete_to),
        "lagMessages": found.lag_messages,
        "lagSeconds": found.lag_seconds,
        "halted": found.halted,
        "retentionStart": output.moment(found.retention_start),
    }
    if versions is not None:
        answer["missingVersions"] = sum(each["missingCount"] for each in versions)
    if messages is not None:
        answer["quarantined"] = messages.count
        answer["quarantinedWithoutId"] = messages.nameless
    return answer


class OneForm(BaseContentNegotiation):
    """Answers in the one form that a view has, whatever the Accept header says."""

    def select_parser(self, *_: Any) -> None:
        return None

    def select_renderer(self, _: Any, renderers: Any, *__: Any) -> tuple[BaseRenderer, str]:
        return renderers[0], renderers[0].media_type
