"""Stores messages from the quarantine, next to consumers that store the same versions."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from history.kinds.entities import BY_NAME, EntityKind
from history.store.days.window import Window
from ingest.messages.decode import ExpiredVersion, decode
from ingest.messages.message import Message
from ingest.messages.rejection import Reason, RejectedMessage
from ingest.store import missing_days
from ingest.store.batch import BadMessage, DecodedRow, EntityDay
from ingest.store.fast_path import store_children
from ingest.store.ledger import Connection
from ingest.store.missing_days import DayRefusal
from ingest.store.slow_path import get_key, store_isolated

# A message with its outcome: stored, repeated, expired, or rejected with the bad message.
MessageOutcome = tuple[Message, str, BadMessage | None]


class MissingDaysError(Exception):
    """Raised when days inside the window have no partition; create them outside the transaction."""

    def __init__(self, days: set[EntityDay]) -> None:
        super().__init__()
        self.days = days


def store_messages(
    connection: Connection,
    messages: Sequence[Message],
    window: Window,
    refused: Mapping[EntityDay, DayRefusal],
) -> list[MessageOutcome]:
    """Store messages with their search keys, inside the caller's transaction.

    A version is expired if its day does not exist and is before the window.

    Args:
        refused: Days that cannot be created, with the reasons.

    Returns:
        The outcome of each message, in no particular order.

    Raises:
        MissingDaysError: Partitions must be created first.
    """
    good: list[DecodedRow] = []
    old: list[DecodedRow] = []
    results: list[MessageOutcome] = []
    for message in messages:
        try:
            good.append(DecodedRow(decode(message, window), message))
        except ExpiredVersion as error:
            old.append(DecodedRow(error.record, message))
        except RejectedMessage as error:
            reject = BadMessage(message, error.reason, error.explanation)
            results.append((message, "rejected", reject))
    existing = missing_days.find_attached_days(connection, {row.day for row in (*good, *old)})
    if missing := {row.day for row in good} - existing - refused.keys():
        raise MissingDaysError(missing)
    rows: defaultdict[str, list[DecodedRow]] = defaultdict(list)
    for row in (*good, *old):
        if row.day in existing:
            rows[row.record.entity].append(row)
    results += ((row.message, "expired", None) for row in old if row.day not in existing)
    for row in good:
        if row.day not in existing:
            reject = BadMessage(row.message, Reason.NO_PARTITION, refused[row.day].explanation)
            results.append((row.message, "rejected", reject))
    for name, entity in BY_NAME.items():
        results += _store_rows(connection, entity, sorted(rows[name], key=get_key))
    return results


def _store_rows(
    connection: Connection, entity: EntityKind, rows: Sequence[DecodedRow]
) -> Iterator[MessageOutcome]:
    outcome = store_isolated(connection, entity, rows)
    store_children(connection, rows)
    repeated = {id(message) for message in outcome.repeated}
    rejected = {id(reject.message): reject for reject in outcome.rejects}
    for row in rows:
        reject = rejected.get(id(row.message))
        again = id(row.message) in repeated
        became = "rejected" if reject else "repeated" if again else "stored"
        yield row.message, became, reject
