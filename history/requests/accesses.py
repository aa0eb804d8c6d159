"""What one request reads, for the access journal."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple


class Unmasked(NamedTuple):
    """A masked value that the answer shows: its RFC 6901 pointer, and the moment of the version."""

    path: str
    moment: datetime


@dataclass(slots=True)
class Look:
    """applications: the ids of the applications of which versions were read, in that order.
    unmasked: the masked value that the answer shows. reason: why, in the person's words.
    refused: what did not let the reader see these applications; empty where nothing did. hidden:
    the ids of applications that a list leaves out because the reader may not see them. listed: the
    first page has what the login opened before."""

    applications: dict[str, None] = field(default_factory=dict)
    unmasked: Unmasked | None = None
    reason: str = ""
    refused: str = ""
    hidden: tuple[str, ...] = ()
    listed: bool = False

    def read(self, applications: Iterable[str]) -> None:
        """Versions of these applications, or of their children, were read."""
        self.applications.update(dict.fromkeys(applications))

    def leave_out(self, applications: Iterable[str]) -> None:
        """A list leaves these out."""
        self.hidden = tuple(dict.fromkeys((*self.hidden, *applications)))


def of(request: object) -> Look:
    """The look of a request, which the access journal gave it."""
    found: Look = getattr(request, "look", None) or Look()
    return found
