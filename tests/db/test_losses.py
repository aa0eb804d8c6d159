"""The `annals ledger` command, the completeness page, the API and the metrics show when unread
messages will be lost."""

import json
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from prometheus_client.core import Metric

from annals.operations.metrics_page import StoreCollector
from history.kinds.entities import BY_TOPIC
from ingest.completeness import ledger_rows, losses
from ingest.kafka.retention_forecast import DeletionForecast, LogForecast, PartitionLog
from ingest.messages.message import TopicPartition
from ingest.models import Ledger, RetiredTopic
from ingest.store import ledger
from ingest.store.session import open_connection
from tests.db.commands import read_output
from tests.db.ingest_rows import create_ledger_row
from tests.db.screens import read_text

pytestmark = pytest.mark.django_db
TOPICS = sorted(BY_TOPIC)
NOW = datetime.now(UTC).replace(microsecond=0)
HOUR = 3600.0


@pytest.fixture(autouse=True)
def current_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set NOW to the time of the test, which may run long after this module was imported."""
    monkeypatch.setitem(globals(), "NOW", datetime.now(UTC).replace(microsecond=0))


def make_ledger_row(topic: str, **values: Any) -> Ledger:
    arguments: dict[str, Any] = {
        **dict.fromkeys(("next_offset", "read", "stored", "high_watermark"), 100),
        **dict.fromkeys(("end_known_at", "forecast_at"), NOW),
        "kept_seconds": 8 * HOUR,
        "arriving_rate": 10.0,
        "loss_at": NOW + timedelta(hours=8),
    }
    return create_ledger_row(topic, **arguments | values)


@pytest.fixture
def four_partitions_behind(db: None) -> None:
    """Store ledger rows of four topic partitions with unread messages.

    The first loses messages in ten and a half minutes, the second in eight hours, the third never.
    The topic of the fourth is retired.
    """
    loss_at = NOW + timedelta(minutes=10, seconds=30)
    make_ledger_row(TOPICS[0], high_watermark=24_100, loss_at=loss_at, reading_rate=50.0)
    make_ledger_row(TOPICS[1])
    make_ledger_row(
        TOPICS[2], loss_at=None, kept_seconds=None, arriving_rate=0.0, high_watermark=200
    )
    make_ledger_row(TOPICS[3], loss_at=NOW)
    RetiredTopic.objects.create(topic=TOPICS[3], why="done", retired_at=NOW)


def test_loss_forecasts_are_sorted_by_urgency(four_partitions_behind: None) -> None:
    forecasts = losses.forecast_losses(ledger_rows.load_entries(), now=NOW)
    first, second, third = forecasts.items()
    assert (first[0], first[1].loss_seconds, first[1].unread) == ((TOPICS[0], 0), 630.0, 24_000)
    # Each second 50 messages are read and 20 arrive.
    assert first[1].catch_up_seconds == 24_100 / 30
    assert (second[0], second[1].loss_seconds, second[1].catch_up_seconds) == (
        (TOPICS[1], 0),
        8 * HOUR,
        0.0,
    )
    assert (third[1].loss_seconds, third[1].kept_seconds, third[1].catch_up_seconds) == (
        inf,
        inf,
        24_100 / 30,
    )


def test_loss_forecast_counts_down_while_no_consumer_runs(four_partitions_behind: None) -> None:
    later = losses.forecast_losses(ledger_rows.load_entries(), now=NOW + timedelta(minutes=5))
    assert later[TOPICS[0], 0].loss_seconds == 330.0
    assert later[TOPICS[0], 0].unread == 24_000 + 300 * 10
    assert later[TOPICS[1], 0].unread == 3_000
    assert (
        losses.forecast_losses(ledger_rows.load_entries(), now=NOW + timedelta(days=1))[
            TOPICS[1], 0
        ].loss_seconds
        == 0
    )


def test_catching_up_never_ends_when_messages_arrive_as_fast_as_they_are_read(
    four_partitions_behind: None,
) -> None:
    Ledger.objects.update(reading_rate=20.0)
    assert (
        losses.forecast_losses(ledger_rows.load_entries(), now=NOW)[TOPICS[0], 0].catch_up_seconds
        == inf
    )


def test_forecast_says_that_halted_topic_partition_never_catches_up(
    four_partitions_behind: None, client: Client
) -> None:
    """The forecasts of the other topic partitions do not depend on the halted topic partition."""
    Ledger.objects.filter(topic=TOPICS[0]).update(halted_at=NOW, halted_why="bad")
    forecasts = losses.forecast_losses(ledger_rows.load_entries(), now=NOW)
    assert (forecasts[TOPICS[0], 0].catch_up_seconds, forecasts[TOPICS[0], 0].is_halted) == (
        inf,
        True,
    )
    assert forecasts[TOPICS[2], 0].catch_up_seconds == 100 / 40
    output = read_output("ledger", "--offline")
    assert "data will be lost in 10 min" in output
    assert "catching up never ends: it is halted" in output
    client.force_login(User.objects.get(username="ops"))
    client.cookies[settings.LANGUAGE_COOKIE_NAME] = "en"
    assert "and its reading has stopped" in read_text(client.get("/admin/completeness/"))


def test_loss_metrics_are_served_without_consumer(four_partitions_behind: None) -> None:
    families: dict[str, Metric] = {item.name: item for item in StoreCollector().collect()}
    for name in ("annals_loss_seconds", "annals_catch_up_seconds", "annals_kept_seconds"):
        places = [sample.labels["topic"] for sample in families[name].samples]
        assert places == TOPICS[:3]
    result = {s.labels["topic"]: s.value for s in families["annals_loss_seconds"].samples}
    assert 0 < result[TOPICS[0]] < 631
    assert result[TOPICS[2]] == inf


def test_ledger_command_prints_loss_forecast(four_partitions_behind: None) -> None:
    output = read_output("ledger", "--offline").splitlines()
    [endangered, never] = [item for item in output if "UNREAD" in item]
    assert endangered.startswith(f"UNREAD {TOPICS[0]}[0]: 24,000 messages; data will be lost in ")
    assert endangered.endswith("; catching up takes 13 min 23 s")
    assert "never" in never
    [first, _, third] = json.loads(read_output("ledger", "--offline", "--json"))["losses"]
    assert (first["topic"], first["unread"], first["keptSeconds"]) == (TOPICS[0], 24_000, 28_800.0)
    assert 0 < first["lossSeconds"] < 631
    assert third["lossSeconds"] is None


def test_completeness_page_shows_loss_forecast(
    four_partitions_behind: None, client: Client
) -> None:
    client.force_login(User.objects.get(username="ops"))
    page = read_text(client.get("/admin/completeness/"))
    assert f"{TOPICS[0]}[0]: data will be lost in 10 min" in page
    assert "catching up takes 13 min 23 s." in page
    Ledger.objects.update(reading_rate=1.0)
    hopeless = read_text(client.get("/admin/completeness/"))
    assert "and messages come as fast as they are read" in hopeless


@pytest.mark.django_db(transaction=True)
def test_forecast_of_loss_is_recorded_only_by_current_owner_of_topic_partition() -> None:
    """The forecast says when the brokers will delete unread messages. A forecast without a measured
    reading rate leaves the stored reading rate unchanged."""
    source = TopicPartition(TOPICS[0], "t", 0)
    with open_connection("annals-test") as plain:
        old = ledger.claim_partition(plain, source, 0)
        new = ledger.claim_partition(plain, source, 0)
        for claim, moment, kept_seconds, arriving, rate in (
            (new, NOW.timestamp(), None, 7.0, 123.0),
            (old, None, 1.0, 8.0, 5.0),
            (new, NOW.timestamp(), 60.0, 9.0, None),
        ):
            result = LogForecast(
                PartitionLog(0, 0, 0, arriving), DeletionForecast(moment, 0, 0, kept_seconds)
            )
            ledger.record_forecast(plain, {claim: result}, rate)
        plain.commit()
    [ledger_row] = Ledger.objects.all()
    assert (ledger_row.loss_at, ledger_row.kept_seconds) == (NOW, 60.0)
    assert (ledger_row.arriving_rate, ledger_row.reading_rate) == (9.0, 123.0)
    assert ledger_row.forecast_at is not None
    connection.close()


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59.9, "59 s"), (60, "1 min 0 s"), (7_800, "2 h 10 min"), (200_000, "2 d 7 h")],
)
def test_duration_is_formatted_in_two_units(seconds: float, words: str) -> None:
    assert losses.format_duration(seconds) == words
