"""Signals for code that records, counts or prevents access to documents."""

from typing import Final

from django.dispatch import Signal

from history.common.explained_errors import ExplainedError

# Sent before an export reads its first row. Arguments: `entity`, `days` (a list of
# history.retention.export.days.ExportDay) and the `options` of the command.
export_begins: Final = Signal()

# Sent when a `user` opens the start page. A receiver returns the kinds and ids of the documents
# that the user opened before, the latest first.
opened_documents_requested: Final = Signal()


class NotJournaledError(ExplainedError, RuntimeError):
    """Raised by a receiver of `export_begins` if the access journal cannot record the export.

    The export then does not begin. The message says why.
    """
