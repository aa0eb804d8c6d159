"""The record of what one request reads and shows, made for the access journal."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple


class UnmaskedValue(NamedTuple):
    """A masked value that the answer shows in clear."""

    path: str  # the RFC 6901 pointer of the value
    moment: datetime  # the moment of the version that has it


@dataclass(slots=True)
class AccessRecord:
    """What one request has read and shown so far."""

    # ids of the applications that were read, or that have children that were read; in the order of
    # reading
    applications: dict[str, None] = field(default_factory=dict)
    unmasked: UnmaskedValue | None = None
    reason: str = ""  # why the value was unmasked, in the person's words
    refused: str = ""  # why the viewer may not see `applications`; empty if not refused
    hidden: tuple[str, ...] = ()  # ids of applications that a list leaves out for this viewer
    # True: the journal gets one entry for the whole answer, not one for each application, because
    # the answer is about a person or a period
    is_one_entry: bool = False
    listed: bool = False  # whether the start page lists documents that this login opened before

    def note_read(self, applications: Iterable[str]) -> None:
        """Note that versions of these applications or of their children were read."""
        self.applications.update(dict.fromkeys(applications))

    def note_left_out(self, applications: Iterable[str]) -> None:
        """Note that a list leaves out these applications for this viewer."""
        self.hidden = tuple(dict.fromkeys((*self.hidden, *applications)))


def get_access_record(request: object) -> AccessRecord:
    """Return the record that the middleware of the access journal attached to the request."""
    access: AccessRecord = getattr(request, "look", None) or AccessRecord()
    return access
