"""A consumer that does not know that `annals distribute` ran."""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pytest
from django.core.management import call_command
from django.db import connection

from history import distribution
from history.daily import days
from history.distributing import steps
from history.entities import BY_TOPIC, ENTITIES
from ingest.store.retrying import RetryingWriter
from ingest.store.session import connect
from ingest.store.transaction import Writer
from tests.citus.cluster import Citus
from tests.db.ingested import CHILD_SOURCE, Ingested, claim_all, counts
from tests.killed import Killed
from tests.messages import CHILD, NOW, value

DAY = NOW.date()
TABLE = BY_TOPIC[CHILD].table


def child(name: str) -> bytes:
    return value(id=name, productInstanceId="a1")


def distribute() -> None:
    call_command("distribute", shards=2, stdout=io.StringIO())


@dataclass
class Late:
    """A consumer that `annals distribute` did not see: it has asked whether the tables are
    distributed, and then lost its connection, or was started after the look for consumers."""

    ingested: Ingested
    known: dict[tuple[object, ...], bool | None]

    def goes_on(self) -> None:
        """This process, which distributes the tables, knows again what the consumer knew."""
        distribute()
        distribution._known.clear()
        distribution._known.update(self.known)


@pytest.fixture(scope="module")
def late(citus: Citus) -> Iterator[Late]:
    """It has stored a child. The days are detached, and that was all."""
    plain = citus.raw()
    for entity in ENTITIES:
        days.create(plain, entity.table, DAY)
    found = Late(Ingested(Writer(partial(connect, "annals-late")), claim_all()), {})
    found.ingested.write(child("t1"), source=CHILD_SOURCE)
    found.known = dict(distribution._known)

    def ends(*_: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps.days, "create", ends)
        with pytest.raises(Killed):
            distribute()
    connection.close()
    yield found
    found.ingested.writer.close()
    connection.close()


def test_a_consumer_that_was_not_seen_goes_on(citus: Citus, late: Late) -> None:
    late.goes_on()
    batch = late.ingested.batch(child("t2"), source=CHILD_SOURCE)
    RetryingWriter(late.ingested.writer).write(batch, late.ingested.claims, {})
    assert counts(CHILD_SOURCE)["stored"] == 2
