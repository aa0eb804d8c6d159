"""What became of one version or message: stored, in quarantine, unread, lost, never seen."""

from history.quarantined import Place
from history.trace.fate import Fate, Name, State
from history.trace.message import Bounds, of_message
from history.trace.version import of_version, quarantined_fate
from history.trace.words import plain, said

__all__ = [
    "Bounds",
    "Fate",
    "Name",
    "Place",
    "State",
    "of_message",
    "of_version",
    "plain",
    "quarantined_fate",
    "said",
]
