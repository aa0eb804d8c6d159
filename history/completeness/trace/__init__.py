"""The fate of one version or message: stored, in quarantine, unread, lost, never seen."""

from history.completeness.trace.fate import (
    BrokerBounds,
    Fate,
    FateState,
    VersionName,
    make_quarantined_fate,
    trace_message,
    trace_version,
)
from history.completeness.trace.fate_texts import (
    FateDescription,
    describe_fate,
    format_minute,
    make_description,
)
from history.store.quarantined_messages import MessagePosition

__all__ = [
    "BrokerBounds",
    "Fate",
    "FateDescription",
    "FateState",
    "MessagePosition",
    "VersionName",
    "describe_fate",
    "format_minute",
    "make_description",
    "make_quarantined_fate",
    "trace_message",
    "trace_version",
]
