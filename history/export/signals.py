"""Says that an export begins, to those who record it."""

from django.dispatch import Signal

# Sent before the first row is read, with `entity`, `days` (history.export.days.Day) and `options`
# of the command. A receiver that raises ExportRefusedError stops the export.
begins = Signal()


class ExportRefusedError(RuntimeError):
    """The export must not begin; the message says why."""
