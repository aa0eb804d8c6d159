"""Stores messages out of quarantine, next to consumers that store the same versions."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from history.daily.window import Window
from history.entities import BY_NAME, Entity
from ingest.source.decode import Expired, Reason, Rejected, decode
from ingest.source.message import Message
from ingest.store import missing_days
from ingest.store.batch import EntityDay, Reject, Row
from ingest.store.ledger import Connection
from ingest.store.missing_days import Refusal
from ingest.store.slow_path import key, store_isolated

# A message, and what became of it: `stored`, `repeated`, `expired`, or `rejected` with the reject.
Result = tuple[Message, str, Reject | None]


class MissingDaysError(Exception):
    """Days inside the window have no partition. They are created outside of the transaction."""

    def __init__(self, days: set[EntityDay]) -> None:
        super().__init__()
        self.days = days


def store(
    connection: Connection,
    messages: Sequence[Message],
    window: Window,
    refused: Mapping[EntityDay, Refusal],
) -> list[Result]:
    """Store messages in the caller's transaction, each with its search keys; the results are in no
    order. A version whose day is not there and is too old is `expired`. refused: days that cannot
    be created, and why. Raises MissingDaysError."""
    good: list[Row] = []
    old: list[Row] = []
    results: list[Result] = []
    for message in messages:
        try:
            good.append(Row(decode(message, window), message))
        except Expired as error:
            old.append(Row(error.record, message))
        except Rejected as error:
            reject = Reject(message, error.reason, error.detail)
            results.append((message, "rejected", reject))
    existing = missing_days.existing(connection, {row.day for row in (*good, *old)})
    if missing := {row.day for row in good} - existing - refused.keys():
        raise MissingDaysError(missing)
    rows: defaultdict[str, list[Row]] = defaultdict(list)
    for row in (*good, *old):
        if row.day in existing:
            rows[row.record.entity].append(row)
    results += ((row.message, "expired", None) for row in old if row.day not in existing)
    for row in good:
        if row.day not in existing:
            reject = Reject(row.message, Reason.NO_PARTITION, refused[row.day].why)
            results.append((row.message, "rejected", reject))
    for name, entity in BY_NAME.items():
        results += _store(connection, entity, sorted(rows[name], key=key))
    return results


def _store(connection: Connection, entity: Entity, rows: Sequence[Row]) -> Iterator[Result]:
    outcome = store_isolated(connection, entity, rows)
    repeated = {id(message) for message in outcome.repeated}
    rejected = {id(reject.message): reject for reject in outcome.rejects}
    for row in rows:
        reject = rejected.get(id(row.message))
        again = id(row.message) in repeated
        became = "rejected" if reject else "repeated" if again else "stored"
        yield row.message, became, reject
