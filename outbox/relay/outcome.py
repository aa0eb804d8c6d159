"""What became of the versions of a document that were handed to Kafka. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from outbox.message import Version


@dataclass(frozen=True, slots=True)
class Due:
    """A document with versions that are not sent. sent: the newest that is; version: the newest
    that was recorded. attempts: failed ones since the last success."""

    document: str
    bucket: int
    sent: int
    version: int
    waiting_since: datetime
    recorded_at: datetime
    attempts: int


@dataclass(frozen=True, slots=True)
class Chain:
    """The next versions of a document, one after the other without gaps."""

    due: Due
    versions: Sequence[Version]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a version was not sent. outage: the brokers could not be asked, so it says nothing about
    this version. late: there was no answer in time. shared: Kafka refuses a whole batch with this
    reason, so perhaps another message of it is the bad one."""

    reason: str
    text: str
    outage: bool = False
    late: bool = False
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """sent: the newest version that Kafka confirmed, perhaps none of this chain. recorded_at: of
    that version. failure: of the version after it."""

    due: Due
    sent: int
    recorded_at: datetime
    failure: Failure | None = None
