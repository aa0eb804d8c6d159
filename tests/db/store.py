"""A store that tests fill: versions go into the tables, and days are created when needed."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection

from history import timeline
from history.documents.record import ChangeType
from history.kinds.entities import BY_NAME, ROOT, EntityKind
from history.store.days.days import build_partition_name, compute_bounds

# The reader for questions that no particular login asks. It gets masked values.
HOST = timeline.make_host_reader()
T0 = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=10)


def minute(number: float) -> datetime:
    """Return the moment this number of minutes after T0, which is noon ten days ago."""
    return T0 + timedelta(minutes=number)


class Store:
    """The tables of versions, filled through the test's own connection.

    The rows are the same as if the consumer had stored them.
    """

    def add(
        self,
        id: str,
        version: int,
        data: object,
        minutes_or_moment: datetime | float,
        *,
        entity: EntityKind | str = ROOT,
        type: ChangeType | None = None,
        author: str | None = "m.ivanov",
        client: str = "top-crm",
        application: str | None = None,
    ) -> None:
        """Store one version.

        Args:
            data: A JSON text, or the values to encode as one.
            minutes_or_moment: When the version was written: a moment, or minutes after T0.
        """
        kind = entity if isinstance(entity, EntityKind) else BY_NAME[entity]
        moment = (
            minutes_or_moment
            if isinstance(minutes_or_moment, datetime)
            else minute(minutes_or_moment)
        )
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
        change = type if type is not None else ChangeType(int(version > 0))
        row = [id, version, text, moment, client, author, int(change)]
        columns = "id, version, data, updated_at, client_id, author, type"
        if not kind.root:
            columns += ", product_instance_id"
            row.append(application or "A1")
        self.make_day(kind, moment)
        marks = ", ".join(["%s"] * len(row))
        with connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO {kind.table} ({columns}) VALUES ({marks})", row)

    def make_day(self, entity: EntityKind, moment: datetime) -> None:
        """Create the day of a moment unless it exists."""
        day = moment.astimezone(UTC).date()
        first, end = compute_bounds(day)
        with connection.cursor() as cursor:
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {build_partition_name(entity.table, day)}"
                f" PARTITION OF {entity.table} FOR VALUES FROM ('{first}') TO ('{end}')"
            )


@contextmanager
def record_queries(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Yield a list that gets all statements sent to the database, also those outside Django."""
    statements: list[str] = []
    plain = psycopg.Cursor.execute

    def execute(self: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
        statements.append(query if isinstance(query, str) else repr(query))
        return plain(self, query, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(psycopg.Cursor, "execute", execute)
        yield statements


def add_application_of_two_people(store: Store) -> None:
    """Add the application A1 and its task T1, three versions of each, changed by two people."""
    for number in range(3):
        store.add("A1", number, {"name": "Loan", "rate": number}, number, author="m.ivanov")
        store.add(
            "T1",
            number,
            {"stage": number},
            number,
            entity="product-task",
            author="m.prygunov",
            application="A1",
        )
