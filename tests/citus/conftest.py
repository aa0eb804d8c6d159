"""Fixtures of the tests on a Citus cluster.

ANNALS_TEST_CITUS is the DSN of the coordinator of a running cluster. The tests do not start one,
because no package registry has Citus. Without this variable the tests are skipped, also with
ANNALS_TEST_ALL=1.
"""

import io
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_django
from django.core.management import call_command

from history.common import clock
from history.kinds.entities import ENTITIES
from history.store.days import days
from tests.citus.cluster import Citus, create_database, disconnect, use_database

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    without = pytest.mark.skip(
        reason="needs ANNALS_TEST_CITUS, the DSN of a Citus coordinator whose workers have joined"
    )
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.citus)
            if not os.environ.get("ANNALS_TEST_CITUS"):
                item.add_marker(without)


@pytest.fixture(scope="module")
def citus(
    django_db_setup: None, django_db_blocker: pytest_django.DjangoDbBlocker
) -> Iterator[Citus]:
    """A database for the tests of one file, with the tables of Annals, which are not distributed.

    Django, ingest and the commands of this process use it.
    """
    with (
        create_database(os.environ["ANNALS_TEST_CITUS"]) as cluster,
        django_db_blocker.unblock(),
        use_database(cluster.url),
    ):
        call_command("migrate", verbosity=0)
        yield cluster


@pytest.fixture(scope="module")
def distributed(citus: Citus) -> Citus:
    """The database of `citus` with distributed tables, and days for yesterday to tomorrow."""
    plain = citus.connect()
    today = clock.now().date()
    for entity in ENTITIES:
        for number in (-1, 0, 1):
            days.create_partition(plain, entity.table, today + timedelta(number))
    # Few shards, because creating a day takes longer with each shard.
    call_command("distribute", shards=4, stdout=io.StringIO())
    disconnect()
    return citus
