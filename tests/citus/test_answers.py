"""The oracle test with distributed tables and few random histories. See tests/oracle."""

import os
from datetime import UTC, date, datetime

import pytest
from django.db import connection
from django.test import Client
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from history.kinds.entities import EntityKind
from history.store.search_index.children import mark_complete
from tests.citus.cluster import Citus
from tests.db.store import Store
from tests.oracle.checks import OracleApi
from tests.oracle.histories import GeneratedVersion, generate_histories
from tests.oracle.test_oracle import compare_all, make_api, make_days

HISTORIES = int(os.environ.get("ORACLE_HISTORIES", "3"))


class StoreWithKnownDays(Store):
    """A store that remembers which days exist.

    Asking the cluster whether a day exists takes a round trip to each shard.
    """

    def __init__(self) -> None:
        self._made: set[tuple[str, date]] = set()

    def make_day(self, entity: EntityKind, moment: datetime) -> None:
        place = (entity.table, moment.astimezone(UTC).date())
        if place not in self._made:
            super().make_day(entity, moment)
            self._made.add(place)


@pytest.fixture(scope="module")
def store(distributed: Citus) -> Store:
    """The tables, with a partition for each day on which generated histories have versions.

    The table search_key is marked as complete: it has a row for each child of an application.
    """
    tables = StoreWithKnownDays()
    make_days(tables)
    mark_complete(connection.connection)
    return tables


@pytest.fixture
def api(store: Store, client: Client, monkeypatch: pytest.MonkeyPatch) -> OracleApi:
    return make_api(client, monkeypatch)


@settings(
    max_examples=HISTORIES,
    deadline=None,
    database=None,
    print_blob=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(history=generate_histories(), data=st.data())
def test_every_answer_from_distributed_tables_equals_reference(
    store: Store, api: OracleApi, history: list[GeneratedVersion], data: st.DataObject
) -> None:
    compare_all(store, api, history, data)
