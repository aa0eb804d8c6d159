"""The fate of one version or message: stored, in quarantine, unread, lost, never seen."""

from history.held_messages import MessagePosition
from history.trace.fate import (
    BrokerBounds,
    Fate,
    FateState,
    VersionName,
    make_quarantined_fate,
    trace_message,
    trace_version,
)
from history.trace.words import as_object, describe_fate, format_minute

__all__ = [
    "BrokerBounds",
    "Fate",
    "FateState",
    "MessagePosition",
    "VersionName",
    "as_object",
    "describe_fate",
    "format_minute",
    "make_quarantined_fate",
    "trace_message",
    "trace_version",
]
