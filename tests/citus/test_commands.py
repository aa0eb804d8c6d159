"""Commands that read a distributed installation with rows of the simulator."""

import io
from datetime import timedelta

import pytest
from django.core.management import call_command

from history.base import clock
from history.entities import ENTITIES
from tests.citus.cluster import Citus
from tests.db import simulated
from tests.shape import shaped

YESTERDAY = clock.now().date() - timedelta(1)


@pytest.fixture(scope="module")
def filled(distributed: Citus) -> int:
    return simulated.load(distributed.raw(), YESTERDAY, applications=30)


def said(*words: str) -> str:
    out = io.StringIO()
    call_command(*words, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def test_capacity_measures_the_days_of_all_nodes(filled: int) -> None:
    found = shaped("capacity", said("capacity", "--json"))
    assert set(found["tables"]) == {entity.table for entity in ENTITIES}
    assert found["total"]["data"] > filled * 91 * 500


def test_keys_of_stored_versions_are_indexed(filled: int) -> None:
    found = shaped("search index", said("search", "index", "--json"))
    assert found["rows"] > 0
    assert found["keys"] > 0
    assert shaped("search index", said("search", "index", "--json"))["rows"] == 0


@pytest.mark.usefixtures("filled")
def test_gaps_and_partitions_are_listed() -> None:
    shaped("gaps", said("gaps", "--json"))
    said("partitions", "list")
    said("partitions", "plan")
