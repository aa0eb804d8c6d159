"""What one request reads, for the access journal."""

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
    """What one request reads and shows."""

    # ids of applications with versions that were read, in that order
    applications: dict[str, None] = field(default_factory=dict)
    unmasked: UnmaskedValue | None = None  # the masked value that the answer shows
    reason: str = ""  # why it was unmasked, in the person's words
    refused: str = ""  # what kept the viewer from these applications, or empty
    hidden: tuple[str, ...] = ()  # ids of applications that a list leaves out for this viewer
    # The answer is about a person or a time, not about applications: the journal gets one entry.
    is_one_entry: bool = False
    listed: bool = False  # the first page shows what the login opened before

    def note_read(self, applications: Iterable[str]) -> None:
        """Note that versions of these applications, or of their children, were read."""
        self.applications.update(dict.fromkeys(applications))

    def note_left_out(self, applications: Iterable[str]) -> None:
        """Note that a list leaves out these applications."""
        self.hidden = tuple(dict.fromkeys((*self.hidden, *applications)))


def get_access_record(request: object) -> AccessRecord:
    """Return the access record that the access journal gave to the request."""
    access: AccessRecord = getattr(request, "look", None) or AccessRecord()
    return access
