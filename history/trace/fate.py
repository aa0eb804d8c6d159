"""What is known of one version or message. Only data."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum, StrEnum
from typing import NamedTuple

from history.quarantined import Place


class State(StrEnum):
    """What became of it. repeated: the same version was stored before. expired: retention removed
    it, or it came too late to be stored. unread: the broker has it. lost: the broker deleted it
    before it was read. unknown: nothing shows that it was ever there."""

    STORED = "stored"
    REPEATED = "repeated"
    EXPIRED = "expired"
    QUARANTINED = "quarantined"
    UNREAD = "unread"
    LOST = "lost"
    UNKNOWN = "unknown"


class How(Enum):
    """Tells the ways apart in which a state comes about; each has its sentence."""

    STORED = "stored"
    STORED_FROM = "stored, the message is known"
    RECOVERED = "stored, Annals asked for it"
    READ = "read and not noted as anything else"
    READ_BEFORE_NOTES = "read before such offsets were noted"
    REPEATED = "repeated"
    TOO_OLD = "older than retention when it was read"
    REMOVED = "removed by retention"
    IN_QUARANTINE = "in quarantine"
    DISCARDED = "discarded in quarantine"
    UNREAD = "not read yet"
    LOST = "deleted by the broker before it was read"
    NO_MESSAGE = "the offset has no message"
    NOT_SENT = "beyond the end of the partition"
    BEFORE_FIRST = "before the first offset that was read"
    NEVER_READ = "nothing is known of the partition"
    NEVER_SEEN = "never seen"
    ONLY_OLD = "never seen, but the old service has it"
    NEVER_THERE = "above the newest version"


class Name(NamedTuple):
    """A version. version: None where a message does not say it; id: empty where it does not."""

    entity: str
    id: str
    version: int | None


class MayBe(NamedTuple):
    """Of a version that was never seen: messages of its topics among which it may be. unread: None
    if their number is not known. complete_to: what was sent before was read."""

    unread: int | None
    lost: int
    expired: int
    complete_to: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """at: when this became so; None if not known. place: the message that brought it, as far as
    known. source: whom Annals asked for it, if it never arrived. made_at: the version's updatedAt,
    where it is stored. settled_at: when it was discarded.
    reason: why it is in quarantine, a member of ingest's Reason; detail: the same as a sentence for
    operators. certain: False if it may also have been repeated or expired."""

    state: State
    how: How
    name: Name | None = None
    place: Place | None = None
    at: datetime | None = None
    made_at: datetime | None = None
    settled_at: datetime | None = None
    reason: str = ""
    detail: str = ""
    certain: bool = True
    may_be: MayBe | None = None
    source: str = ""
