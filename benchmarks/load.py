"""The load of the ingest benchmarks: simulated messages, and the same rows prepared for COPY."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from django.conf import settings

from annals.demo.simulator import stream
from benchmarks.harness import Harness
from history.daily.window import Window
from history.entities import BY_NAME, root
from history.record import Record
from ingest.source.decode import decode
from ingest.source.message import Message
from ingest.source.producer import KafkaProducer
from ingest.store.copy import HEADER, TRAILER, encode_row, get_copy_columns

ROOT = root()

TOPIC = ROOT.topics[0]
# A transaction of bare COPY: statements with their binary payloads.
Prepared = list[tuple[str, bytes]]


def simulated(count: int, seed: int = 1) -> list[Message]:
    """Simulated messages dated within the last two days, in the form that a consumer reads."""
    start = datetime.now(UTC) - timedelta(days=2)
    step = timedelta(days=2) / (count + 1)
    found = []
    for number, each in enumerate(stream(seed, start, step=step)):
        if number == count:
            break
        found.append(Message(each.topic, 0, number, 0, each.key, each.value))
    return found


def prepared(sent: Iterable[Message]) -> tuple[list[Prepared], list[Record]]:
    """The same messages as COPY payloads, one batch of rows per transaction."""
    window = Window.at(datetime.now(UTC), 90, 14)
    records = [decode(message, window) for message in sent]
    size = settings.ANNALS.batch_rows
    starts = range(0, len(records), size)
    return [transaction(records[start : start + size]) for start in starts], records


def transaction(records: Iterable[Record]) -> Prepared:
    """Records as COPY payloads, one for each table."""
    rows: dict[str, list[bytes]] = {}
    for record in records:
        rows.setdefault(record.entity, []).append(encode_row(record))
    return [
        (
            f"COPY {BY_NAME[name].table} ({', '.join(get_copy_columns(BY_NAME[name]))})"
            " FROM STDIN (FORMAT binary)",
            b"".join((HEADER, *encoded, TRAILER)),
        )
        for name, encoded in rows.items()
    ]


def produce(bench: Harness, sent: Iterable[Message]) -> None:
    producer = bench.producer()
    for message in sent:
        producer.send(message.topic, message.key or b"", message.value or b"")
    confirm(producer)


def confirm(producer: KafkaProducer) -> None:
    """Wait until everything is produced. Raises RuntimeError if something was not."""
    if producer.flush() or producer.failed:
        raise RuntimeError(f"not everything was produced: {producer.first_error}")
