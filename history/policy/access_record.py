"""The record of what one request reads and shows, made for the access journal."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple


class UnmaskedValue(NamedTuple):
    """A masked value that the answer shows: its RFC 6901 pointer and the moment of its version."""

    path: str
    moment: datetime


@dataclass(slots=True)
class AccessRecord:
    """What one request has read and shown so far."""

    # ids of the applications whose versions were read, in the order of reading
    applications: dict[str, None] = field(default_factory=dict)
    unmasked: UnmaskedValue | None = None  # the masked value that the answer shows
    reason: str = ""  # why it was unmasked, in the person's words
    refused: str = ""  # why the viewer was refused these applications; empty if not refused
    hidden: tuple[str, ...] = ()  # ids of applications that a list leaves out for this viewer
    # whether the journal gets one entry for the whole answer, instead of one for each application:
    # the answer is about a person or a period
    is_one_entry: bool = False
    listed: bool = False  # whether the first page lists what this login opened before

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
