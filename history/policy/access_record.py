"""Records what one request reads and shows, for the access journal."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

_PLAIN_SEGMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,59}|\d{0,4}|\*", re.ASCII)


class UnmaskedValue(NamedTuple):
    """A value of a marked field that the answer shows unmasked."""

    path: str  # the RFC 6901 pointer of the value
    moment: datetime  # the moment of the version that has it


@dataclass(slots=True)
class AccessRecord:
    """What one request has read and shown so far."""

    # The ids of the applications that were read, and of those with children that were read, in the
    # order of reading.
    applications: dict[str, None] = field(default_factory=dict)
    unmasked: UnmaskedValue | None = None
    reason: str = ""  # why the value was unmasked, in the person's words
    refused: str = ""  # why the viewer may not see `applications`; empty if the viewer may
    hidden: tuple[str, ...] = ()  # ids of applications that a list leaves out for this viewer
    # True: the journal gets one entry for the whole answer, not one for each application, because
    # the answer is about a person or a span of time
    is_one_entry: bool = False
    # The filters of a page of changes, by parameter name, as the journal shows them: parts of the
    # path that may be data of the bank's clients are hidden.
    question: dict[str, str] = field(default_factory=dict)
    listed: bool = False  # whether the start page lists documents that this login opened before

    def note_read(self, applications: Iterable[str]) -> None:
        """Record that versions of these applications or of their children were read."""
        self.applications.update(dict.fromkeys(applications))

    def note_left_out(self, applications: Iterable[str]) -> None:
        """Record that a list leaves out these applications for this viewer."""
        self.hidden = tuple(dict.fromkeys((*self.hidden, *applications)))


def hide_data_in_path(path: str) -> str:
    """Return the path of a field with `*` for each segment that might be data of a client.

    These are all segments that are not a plain name, a number or `*`: the key of an object might be
    data, and so might the value in `[number=4510 123456]`.
    """
    return "/".join(
        segment if _PLAIN_SEGMENT.fullmatch(segment) else "*" for segment in path.split("/")
    )


def get_access_record(request: object) -> AccessRecord:
    """Return the record that the middleware of the access journal attached to the request."""
    access: AccessRecord = getattr(request, "look", None) or AccessRecord()
    return access
