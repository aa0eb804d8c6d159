"""The real writer on distributed tables, for the tests of ingest that plain tables have too."""

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


def empty(citus: Citus) -> None:
    """Forget everything that ingest wrote. The days stay: to make one takes a second."""
    with citus.connect() as plain:
        for table in sorted(FILLED):
            plain.execute(f"DELETE FROM {table}")


@pytest.fixture
def ingested(distributed: Citus) -> Iterator[Ingested]:
    """Empty tables, and a writer that has claimed its partitions."""
    empty(distributed)
    ingested = Ingested(BatchWriter(open_connection), claim_all())
    yield ingested
    ingested.writer.close()
    connection.close()
    empty(distributed)


@pytest.fixture
def on_worker(distributed: Citus) -> Iterator[Ingested]:
    """The same with a writer that is connected to a worker."""
    empty(distributed)
    with use_database(distributed.urls[1]):
        ingested = Ingested(BatchWriter(open_connection), claim_all())
        yield ingested
        ingested.writer.close()
    empty(distributed)
