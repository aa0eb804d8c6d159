"""Stores messages from the quarantine. Consumers may store the same versions meanwhile."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from history.kinds.entities import BY_NAME, EntityKind
from history.store.days.window import Window
from ingest.messages.decode import ExpiredVersionError, decode
from ingest.messages.message import KafkaMessage
from ingest.messages.rejection import Reason, RejectedMessageError
from ingest.store import missing_days
from ingest.store.batch import BadMessage, DecodedRow, EntityDay
from ingest.store.fast_path import store_children
from ingest.store.ledger import Connection
from ingest.store.missing_days import DayRefusal
from ingest.store.slow_path import get_key, store_isolated


class MessageOutcome(NamedTuple):
    """The outcome of the retry of one message."""

    message: KafkaMessage
    outcome: str  # stored, repeated, expired or rejected
    bad_message: BadMessage | None = None  # the message with the reason, if it was rejected
    stored_row: DecodedRow | None = None  # the row, if the message was stored


class MissingDaysError(Exception):
    """Raised when days inside the window have no partition.

    The caller must create the partitions outside the transaction, and then try again.
    """

    def __init__(self, days: set[EntityDay]) -> None:
        super().__init__()
        self.days = days


def store_messages(
    connection: Connection,
    messages: Sequence[KafkaMessage],
    window: Window,
    refused: Mapping[EntityDay, DayRefusal],
) -> list[MessageOutcome]:
    """Store messages with their search keys, inside the caller's transaction.

    A version is expired if its day is before the window and has no partition.

    Args:
        window: The days that are kept.
        refused: Days that cannot be created, with the reasons.

    Returns:
        The outcome of each message, in no particular order.

    Raises:
        MissingDaysError: Partitions must be created first.
    """
    current_rows: list[DecodedRow] = []
    old_rows: list[DecodedRow] = []
    outcomes: list[MessageOutcome] = []
    for message in messages:
        try:
            current_rows.append(DecodedRow(decode(message, window), message))
        except ExpiredVersionError as error:
            old_rows.append(DecodedRow(error.record, message))
        except RejectedMessageError as error:
            bad_message = BadMessage(message, error.reason, error.explanation)
            outcomes.append(MessageOutcome(message, "rejected", bad_message))
    rows = [*current_rows, *old_rows]
    existing_days = missing_days.find_attached_days(connection, {row.day for row in rows})
    if missing := {row.day for row in current_rows} - existing_days - refused.keys():
        raise MissingDaysError(missing)
    rows_by_kind: defaultdict[str, list[DecodedRow]] = defaultdict(list)
    for row in rows:
        if row.day in existing_days:
            rows_by_kind[row.record.entity].append(row)
    outcomes += (
        MessageOutcome(row.message, "expired", None)
        for row in old_rows
        if row.day not in existing_days
    )
    for row in current_rows:
        if row.day not in existing_days:
            bad_message = BadMessage(row.message, Reason.NO_PARTITION, refused[row.day].explanation)
            outcomes.append(MessageOutcome(row.message, "rejected", bad_message))
    for name, entity in BY_NAME.items():
        outcomes += _store_rows(connection, entity, sorted(rows_by_kind[name], key=get_key))
    return outcomes


def _store_rows(
    connection: Connection, entity: EntityKind, rows: Sequence[DecodedRow]
) -> Iterator[MessageOutcome]:
    outcome = store_isolated(connection, entity, rows)
    store_children(connection, rows)
    repeated = {id(message) for message in outcome.repeated}
    refused = {id(bad_message.message): bad_message for bad_message in outcome.refused}
    for row in rows:
        bad_message = refused.get(id(row.message))
        if bad_message is not None:
            yield MessageOutcome(row.message, "rejected", bad_message)
        elif id(row.message) in repeated:
            yield MessageOutcome(row.message, "repeated")
        else:
            yield MessageOutcome(row.message, "stored", stored_row=row)
