"""Notes the versions of a transaction that the feed of changes has passed (late_list.py)."""

from collections.abc import Iterable

from history.store import late_list
from history.store.late_list import LateVersion
from ingest.messages.message import Message
from ingest.store.batch import DecodedRow
from ingest.store.ledger import Connection


def note_late_versions(
    connection: Connection, rows: Iterable[DecodedRow], unstored: Iterable[Message]
) -> None:
    """Note the versions that the feed of changes has passed, as the last thing in a transaction.

    Args:
        rows: The rows of the transaction.
        unstored: The messages of those of them that are not new in the tables.
    """
    horizon = late_list.lock_horizon(connection)
    if horizon is None:
        return
    late_rows = [row for row in rows if row.record.updated_at < horizon]
    if not late_rows:
        return
    unstored_ids = {id(message) for message in unstored}
    late_list.add_late_versions(
        connection,
        (
            LateVersion(row.record.entity, row.record.id, row.record.updated_at, row.record.version)
            for row in late_rows
            if id(row.message) not in unstored_ids
        ),
    )
