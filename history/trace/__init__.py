"""What became of one version or message: stored, in quarantine, unread, lost, never seen."""

from history.held_messages import MessagePlace
from history.trace.fate import Bounds, Fate, Name, State, of_message, of_version, quarantined_fate
from history.trace.words import as_object, plain, said

__all__ = [
    "Bounds",
    "Fate",
    "MessagePlace",
    "Name",
    "State",
    "as_object",
    "of_message",
    "of_version",
    "plain",
    "quarantined_fate",
    "said",
]
