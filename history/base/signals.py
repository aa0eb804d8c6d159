"""What happens to documents, for those who record, count or prevent it."""

from typing import Final

from django.dispatch import Signal

from history.failure.complaints import Complaint

# Sent before the first row is read, with `entity`, `days` (history.export.days.Day) and `options`
# of the command. A receiver that raises ExportRefusedError stops the export.
begins: Final = Signal()


class ExportRefusedError(Complaint, RuntimeError):
    """The export must not begin; the message says why."""
