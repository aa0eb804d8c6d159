"""Signals for code that records, counts or prevents what happens to documents."""

from typing import Final

from django.dispatch import Signal

from history.common.complaints import ExplainedError

# Sent before the first row is read, with `entity`, `days` (history.retention.export.days.Day) and
# `options` of the command.
begins: Final = Signal()

# Sent for the first page of a `user`. A receiver returns the kinds and ids that it opened before,
# newest first.
looks_back: Final = Signal()


class NotJournaledError(ExplainedError, RuntimeError):
    """A receiver raises it: what the signal is about must not happen. The message says why."""
