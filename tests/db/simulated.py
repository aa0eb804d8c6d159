"""One day of versions from the simulator, copied directly into the tables."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from typing import Any

import msgspec
import psycopg

from annals.demo.simulator import SimulatedMessage, generate_messages
from history.kinds.entities import BY_NAME, ENTITIES
from history.store.days import days
from history.store.days.canonical import list_columns
from tests.messages import SIMULATED

TABLES = [BY_NAME[name].table for name in SIMULATED]


class SimulatedEnvelope(msgspec.Struct):
    """The fields of a simulated message that the tables need."""

    id: str
    data: msgspec.Raw


def load_simulated_day(
    plain: psycopg.Connection[Any], day: date, applications: int, seed: int = 1
) -> int:
    """Create a day in all tables, fill it, and return the number of its rows."""
    start = datetime.combine(day, time(1), UTC)
    rows: dict[str, list[tuple[Any, ...]]] = {entity.name: [] for entity in ENTITIES}
    for message in generate_messages(seed, start, applications=applications):
        rows[message.entity].append(_row(message))
    for name, table_rows in rows.items():
        entity = BY_NAME[name]
        days.create_partition(plain, entity.table, day)
        query = f"COPY {entity.table} ({', '.join(list_columns(entity))}) FROM STDIN"
        with plain.cursor() as cursor, cursor.copy(query) as copy:
            for row in table_rows:
                copy.write_row(row)
        plain.execute(f"ANALYZE {days.build_partition_name(entity.table, day)}")
    return sum(map(len, rows.values()))


def _row(message: SimulatedMessage) -> tuple[Any, ...]:
    envelope = msgspec.json.decode(message.value, type=SimulatedEnvelope)
    return tuple(_fields(message, envelope))


def _fields(message: SimulatedMessage, envelope: SimulatedEnvelope) -> Iterator[Any]:
    yield envelope.id
    yield message.version
    seconds, microseconds = divmod(message.updated_at, 1_000_000)
    yield datetime.fromtimestamp(seconds, UTC).replace(microsecond=microseconds)
    yield message.client_id
    yield message.author
    yield int(message.type)
    if not BY_NAME[message.entity].root:
        yield message.product_instance_id
    yield bytes(envelope.data).decode()
