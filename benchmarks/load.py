"""Makes the input of the ingest benchmarks: simulated messages, and their rows ready for COPY."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from django.conf import settings

from annals.demo.simulator import generate_messages
from benchmarks.harness import Harness
from history.documents.record import Record
from history.kinds.entities import BY_NAME, get_root
from history.store.days.window import Window
from ingest.kafka.producer import KafkaProducer
from ingest.messages.decode import decode
from ingest.messages.message import KafkaMessage
from ingest.store.copy import HEADER, TRAILER, encode_row, get_copy_columns

ROOT = get_root()

TOPIC = ROOT.topics[0]
# A transaction of COPY statements: pairs of a statement and its binary payload.
CopyTransaction = list[tuple[str, bytes]]


def simulate_messages(count: int, seed: int = 1) -> list[KafkaMessage]:
    """Return simulated messages of the last two days, in the form in which a consumer gets them."""
    start = datetime.now(UTC) - timedelta(days=2)
    step = timedelta(days=2) / (count + 1)
    messages = []
    for number, message in enumerate(generate_messages(seed, start, step=step)):
        if number == count:
            break
        messages.append(KafkaMessage(message.topic, 0, number, 0, message.key, message.value))
    return messages


def prepare_copy(messages: Iterable[KafkaMessage]) -> tuple[list[CopyTransaction], list[Record]]:
    """Decode messages. Return COPY transactions, one for each batch of rows, and the records."""
    window = Window.at(datetime.now(UTC), 90, 14)
    records = [decode(message, window) for message in messages]
    size = settings.ANNALS.batch_rows
    starts = range(0, len(records), size)
    return [encode_transaction(records[start : start + size]) for start in starts], records


def encode_transaction(records: Iterable[Record]) -> CopyTransaction:
    """Return the COPY transaction that stores records, with a statement for each table."""
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


def produce_messages(bench: Harness, messages: Iterable[KafkaMessage]) -> None:
    producer = bench.make_producer()
    for message in messages:
        producer.send(message.topic, message.key or b"", message.value or b"")
    confirm_produced(producer)


def confirm_produced(producer: KafkaProducer) -> None:
    """Wait until all messages are produced.

    Raises:
        RuntimeError: A message was not produced.
    """
    if producer.flush() or producer.failed:
        raise RuntimeError(f"not all messages were produced: {producer.first_error}")
