"""Fixtures with the real batch writer on distributed tables.

tests/db has fixtures of the same names on plain tables, so its tests run here too.
"""

from collections.abc import Iterator

import pytest
from django.db import connection

from history.kinds.entities import ENTITIES
from history.store.distribution import DISTRIBUTED_BY
from ingest.store.session import open_connection
from ingest.store.transaction import BatchWriter
from tests.citus.cluster import Citus, use_database
from tests.db.ingested import INGEST_TABLES, Ingested, claim_all

FILLED = {*INGEST_TABLES, *DISTRIBUTED_BY, *(entity.table for entity in ENTITIES), "late_row"}


def delete_ingested_rows(citus: Citus) -> None:
    """Delete everything that ingest wrote, except the days. Creating a day takes a second."""
    with citus.connect() as plain:
        for table in sorted(FILLED):
            plain.execute(f"DELETE FROM {table}")


@pytest.fixture
def ingested(distributed: Citus) -> Iterator[Ingested]:
    """Empty the tables, and yield a writer that has claimed the topic partitions."""
    delete_ingested_rows(distributed)
    ingested = Ingested(BatchWriter(open_connection), claim_all())
    yield ingested
    ingested.writer.close()
    connection.close()
    delete_ingested_rows(distributed)


@pytest.fixture
def on_worker(distributed: Citus) -> Iterator[Ingested]:
    """Empty the tables, and yield a writer that is connected to a worker node of the cluster."""
    delete_ingested_rows(distributed)
    with use_database(distributed.urls[1]):
        ingested = Ingested(BatchWriter(open_connection), claim_all())
        yield ingested
        ingested.writer.close()
    delete_ingested_rows(distributed)
