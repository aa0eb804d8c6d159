"""The metrics of the store, and the health checks."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from prometheus_client.parser import text_string_to_metric_families
from pytest_django import Settings

from annals import metrics as annals_metrics
from annals.configuration import fields
from annals.embedded import process
from annals.operations.metrics_page import StoreCollector
from history import metrics as history_metrics
from history.kinds.entities import BY_NAME, ENTITIES
from ingest.consumer import metrics as ingest_metrics
from ingest.models import Ledger, Quarantined, RetiredTopic
from tests.db.ingest_rows import create_ledger_row, create_quarantined
from tests.messages import NOW
from tests.metric_faults import find_metric_faults as faults_of

pytestmark = pytest.mark.django_db
makes_days = pytest.mark.django_db(transaction=True)  # creating days needs autocommit

TOPIC = "top-storage.export.product-instance"
TOKEN = "a-token-of-some-length"
# The registers of the web, and of consumers, whose metrics this process has imported, too.
REGISTERS = [module.REGISTER for module in (annals_metrics, history_metrics, ingest_metrics)]


@pytest.fixture
def client() -> Client:
    """Return a client that sends an IP address as the host, as health checks of Kubernetes do.

    ALLOWED_HOSTS does not have this address.
    """
    return Client(SERVER_NAME="10.1.2.3")


def fetch_samples(client: Client, **headers: str) -> dict[tuple[str, ...], float]:
    """Return the value of each sample of `/metrics`.

    A key is the name of the metric, followed by the values of the labels in the order of label
    names.
    """
    text = client.get("/metrics", headers=headers).content.decode()
    assert list(faults_of(text_string_to_metric_families(text), REGISTERS)) == []
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def add_ledger_row(topic_id: str, **counts: Any) -> Ledger:
    none = {"stored": 0, "high_watermark": None, "next_offset": counts["read"]}
    return create_ledger_row(topic_id=topic_id, **none | counts)


@pytest.fixture
def no_metrics_token(settings: Settings) -> None:
    """Set up production settings without a metrics token."""
    settings.ANNALS = fields.Settings(demo=False)


def test_healthz_runs_no_query(client: Client) -> None:
    connection.close()
    with connection.execute_wrapper(lambda *_: pytest.fail("a query")):
        answer = client.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


@makes_days
@pytest.mark.usefixtures("few_days")
def test_readyz_names_missing_days_until_they_exist(client: Client) -> None:
    for table in connection.introspection.table_names():
        if table[-8:].isdigit():
            with connection.cursor() as cursor:
                cursor.execute(f"DROP TABLE {table}")
    before = client.get("/readyz")
    assert (before.status_code, before.json()["checks"]["partitions"]) == (
        503,
        f"{2 * len(ENTITIES)} missing",
    )
    call_command("partitions", "maintain")
    after = client.get("/readyz")
    assert after.status_code == 200
    assert set(after.json()["checks"].values()) == {"ok"}


def test_unreachable_database_is_reported_by_readyz_and_metrics(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    (port,) = process.choose_free_ports([None])
    monkeypatch.setitem(connection.settings_dict, "PORT", str(port))
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["checks"]) == (503, {"database": "unreachable"})
    actual = fetch_samples(client)
    assert actual["annals_store_up",] == 0
    assert not any(name.startswith("annals_store_read") for name, *_ in actual)


@pytest.mark.usefixtures("no_metrics_token")
def test_metrics_are_refused_without_token(client: Client) -> None:
    answer = client.get("/metrics")
    assert answer.status_code == 401
    assert "ANNALS_METRICS_TOKEN" in answer.content.decode()


@pytest.mark.parametrize("values", ["", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x"])
def test_metrics_refuse_wrong_token(client: Client, settings: Settings, values: str) -> None:
    settings.ANNALS = fields.Settings(demo=True, metrics_token=TOKEN)
    assert client.get("/metrics", headers={"Authorization": values}).status_code == 401
    assert fetch_samples(client, Authorization=f"Bearer {TOKEN}")[("annals_store_up",)] == 1


def test_lag_metric_of_recreated_topic_ignores_the_old_topic(client: Client) -> None:
    add_ledger_row("old", read=7, stored=5, repeated=2, high_watermark=9)
    add_ledger_row("new", read=3, stored=3, high_watermark=10)
    actual = fetch_samples(client)
    assert actual["annals_store_lag", "0", TOPIC] == 7
    assert actual["annals_store_faults",] == 0


def test_metrics_show_number_of_topics_never_read_and_time_when_end_offset_was_confirmed(
    client: Client,
) -> None:
    confirmed = datetime(2026, 11, 21, 7, tzinfo=UTC)
    add_ledger_row("new", read=0, end_known_at=confirmed)
    RetiredTopic.objects.create(topic=BY_NAME["product-task"].topics[1], why="done", retired_at=NOW)
    actual = fetch_samples(client)
    assert actual["annals_store_topics_never_read",] == 2 * len(ENTITIES) - 2
    end_known = actual["annals_store_end_known_timestamp_seconds", "0", TOPIC]
    assert end_known == confirmed.timestamp()


def test_quarantine_metric_counts_messages_by_status_and_reason(client: Client) -> None:
    add_quarantined("not_json", "new", "new", "retrying", "resolved")
    add_quarantined("too_large", "failed", "discarded")
    actual = fetch_samples(client)
    assert {key[1:]: n for key, n in actual.items() if key[0] == "annals_store_quarantine"} == {
        ("not_json", "new"): 2,
        ("not_json", "retrying"): 1,
        ("too_large", "failed"): 1,
    }


def test_metric_of_ledger_faults_counts_quarantined_message_that_quarantine_lacks() -> None:
    add_ledger_row("new", read=1, quarantined=1)
    assert get_faults(StoreCollector()) == 1
    add_quarantined("not_json", "new", topic_id="new")
    assert get_faults(StoreCollector()) == 0


def test_settled_messages_in_quarantine_are_queried_only_at_first_scrape_of_metrics() -> None:
    add_quarantined("not_json", "new", "resolved")
    collector = StoreCollector()
    with CaptureQueriesContext(connection) as first:
        list(collector.collect())
    with CaptureQueriesContext(connection) as second:
        list(collector.collect())
    assert len([sql for sql in select_quarantine_queries(first) if UNSETTLED_ONLY not in sql]) == 1
    assert select_quarantine_queries(second)
    assert all(UNSETTLED_ONLY in sql for sql in select_quarantine_queries(second))


UNSETTLED_ONLY = """"status" IN ('new', 'retrying', 'failed')"""


def select_quarantine_queries(captured: CaptureQueriesContext) -> list[str]:
    return [query["sql"] for query in captured if "ingest_quarantine" in query["sql"]]


def add_quarantined(reason: str, *statuses: str, topic_id: str = "") -> None:
    for status in statuses:
        offset = Quarantined.objects.count()
        create_quarantined(topic_id=topic_id, offset=offset, reason=reason, status=status)


def get_faults(collector: StoreCollector) -> float:
    (family,) = [item for item in collector.collect() if item.name == "annals_store_faults"]
    return family.samples[0].value


def test_request_metric_counts_requests_by_route(client: Client) -> None:
    local = Client(SERVER_NAME="localhost")
    before = fetch_samples(client)
    local.get("/no/such/page-4711?q=secret")
    actual = fetch_samples(client)
    key = ("annals_http_requests_total", "GET", "none", "404")
    assert actual[key] == before.get(key, 0) + 1
    assert not any("4711" in part for item in actual for part in item)
