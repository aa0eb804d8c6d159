"""Adds new versions to the late list if the feed of changes has passed their moments."""

from collections.abc import Iterable

from history.store import late_list
from history.store.late_list import LateVersion
from ingest.messages.message import KafkaMessage
from ingest.store.batch import DecodedRow
from ingest.store.ledger import Connection


def note_late_versions(
    connection: Connection, rows: Iterable[DecodedRow], not_new: Iterable[KafkaMessage]
) -> None:
    """Add new versions to the late list, if the feed of changes has passed their moments.

    Call this at the end of the transaction that stores the rows: requests for the feed wait from
    this call until the commit.

    Args:
        rows: The rows of the transaction, including rows with a message in `not_new`.
        not_new: The messages with versions that were stored before, or that PostgreSQL refused.
    """
    horizon = late_list.lock_horizon(connection)
    if horizon is None:
        return
    late_rows = [row for row in rows if row.record.updated_at < horizon]
    if not late_rows:
        return
    known_ids = {id(message) for message in not_new}
    late_list.add_late_versions(
        connection,
        (
            LateVersion(row.record.entity, row.record.id, row.record.updated_at, row.record.version)
            for row in late_rows
            if id(row.message) not in known_ids
        ),
    )
