"""Annals computes `completeTo`, the moment up to which everything was read, from the end offsets
that the brokers confirmed for all topic partitions."""

import json
import time
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.core.management import CommandError
from django.test import Client

from history.common import clock
from history.completeness import complete_to
from history.kinds.entities import BY_NAME, ROOT
from ingest.completeness import ledger_rows
from ingest.messages.message import TopicPartition
from ingest.models import Ledger, RetiredTopic
from ingest.store import ledger
from ingest.store.ledger import Claim
from ingest.store.session import open_connection
from tests.db.commands import read_output
from tests.db.ingest_rows import create_ledger_row
from tests.db.ingested import Ingested, query
from tests.messages import SOURCE, TWIN_TOPIC, make_value

TOPIC = SOURCE.topic
NOW = clock.now()
pytestmark = pytest.mark.django_db


def add_read_partition(topic: str, partition: int = 0, **columns: Any) -> Ledger:
    """Create the ledger row of a topic partition with ten messages, all read.

    The brokers last confirmed the end offset two minutes ago.

    Args:
        columns: Values that replace default values of the row, by column.
    """
    columns.setdefault("end_known_at", NOW - timedelta(minutes=2))
    return create_ledger_row(topic, partition=partition, **columns)


def get_completeness() -> tuple[datetime | None, int | None]:
    completeness = complete_to.read_completeness([ROOT])
    return completeness.complete_to, completeness.lag_messages


def add_empty_partition(topic: str, partition: int, **columns: Any) -> Ledger:
    counts = {"next_offset": 0, "read": 0, "stored": 0}
    return add_read_partition(topic, partition, **{**counts, "high_watermark": 0, **columns})


def test_empty_topic_partition_is_complete_up_to_last_confirmation_of_its_end_offset() -> None:
    add_read_partition(TOPIC)
    add_empty_partition(TOPIC, 1)
    add_empty_partition(TWIN_TOPIC, 0, end_known_at=NOW - timedelta(minutes=3))
    assert get_completeness() == (NOW - timedelta(minutes=3), 0)


def test_complete_to_is_unknown_when_end_offset_of_a_partition_is_unknown() -> None:
    add_read_partition(TOPIC)
    add_empty_partition(TWIN_TOPIC, 0, high_watermark=None, end_known_at=None)
    assert get_completeness() == (None, None)


@pytest.mark.parametrize("topic", ROOT.topics)
def test_complete_to_is_unknown_when_a_topic_was_never_read(topic: str) -> None:
    add_read_partition(topic)
    assert get_completeness() == (None, None)


def test_topic_without_consumer_delays_completeness_until_topic_is_retired() -> None:
    """No consumer reads the migration topic, so its end offset was last confirmed long ago."""
    add_read_partition(TOPIC)
    add_read_partition(TWIN_TOPIC, end_known_at=NOW - timedelta(days=30))
    assert get_completeness() == (NOW - timedelta(days=30), 0)
    ledger_rows.retire_topic(TWIN_TOPIC, "the migration ended")
    assert get_completeness() == (NOW - timedelta(minutes=2), 0)
    assert ledger_rows.unretire_topic(TWIN_TOPIC)
    assert get_completeness() == (NOW - timedelta(days=30), 0)


def test_complete_to_is_moment_of_newest_read_message_but_never_in_the_future() -> None:
    add_read_partition(TWIN_TOPIC)
    behind = add_read_partition(TOPIC, high_watermark=12, newest_timestamp=NOW - timedelta(hours=1))
    assert get_completeness() == (NOW - timedelta(hours=1), 2)
    behind.newest_timestamp = NOW + timedelta(days=900)
    behind.save()
    assert get_completeness() == (NOW - timedelta(minutes=2), 2)


def read_age_of_end(topic: str = TOPIC) -> float | None:
    """Return how many seconds ago the end offset of a topic was confirmed, or None if never."""
    [row] = query(
        "SELECT extract(epoch FROM now() - end_known_at)::float8 AS age"
        " FROM ingest_ledger WHERE topic = %s",
        topic,
    )
    return None if row["age"] is None else float(row["age"])


def write_heartbeat(claim: Claim, end: int | None, seen_at: float | None) -> None:
    with open_connection() as plain:
        ledger.record_heartbeat(plain, {claim: end}, seen_at)


def test_heartbeat_does_not_confirm_end_offset_while_brokers_do_not_answer(
    ingested: Ingested,
) -> None:
    """Without answers, the Kafka client still has an end offset, which might be out of date."""
    claim = ingested.claims[SOURCE]
    write_heartbeat(claim, 0, None)
    assert read_age_of_end() is None
    write_heartbeat(claim, 0, time.monotonic() - 100)
    age = read_age_of_end()
    assert age is not None
    assert 100 <= age < 130
    write_heartbeat(claim, 0, None)
    write_heartbeat(claim, None, time.monotonic())
    later = read_age_of_end()
    assert later is not None
    assert later >= age


def test_end_offset_stays_unknown_until_a_heartbeat_reports_it(ingested: Ingested) -> None:
    """Before the heartbeat, the lag is unknown and not 0, even after a batch was written."""
    ingested.write(make_value(id="a"))
    [entry] = [item for item in ledger_rows.load_entries() if item.topic == TOPIC]
    assert entry.lag is None
    write_heartbeat(ingested.claims[SOURCE], 5, time.monotonic())
    ingested.write(make_value(id="b"))
    [entry] = [item for item in ledger_rows.load_entries() if item.topic == TOPIC]
    assert entry.lag == 3
    ingested.store(
        ingested.make_batch(
            make_value(id="c"), make_value(id="d"), make_value(id="e"), make_value(id="f")
        )
    )
    [entry] = [item for item in ledger_rows.load_entries() if item.topic == TOPIC]
    assert (entry.lag, entry.high_watermark) == (0, 6)


run = partial(read_output, "ledger", "--offline")


def test_ledger_command_retires_and_unretires_topic() -> None:
    add_read_partition(TOPIC)
    add_read_partition(TWIN_TOPIC, high_watermark=12)
    assert "2 messages of the topic were not read" in run(
        "retire", TWIN_TOPIC, "--why", "the migration ended"
    )
    output = run()
    assert "retired: the migration ended" in output
    assert f"RETIRED {TWIN_TOPIC} since {NOW:%Y-%m-%d}: the migration ended" in output
    assert f"NOT YET READ {TWIN_TOPIC}" not in output
    report = json.loads(run("--json"))
    assert [(item["topic"], item["why"]) for item in report["retired"]] == [
        (TWIN_TOPIC, "the migration ended")
    ]
    since = RetiredTopic.objects.get().retired_at
    run("retire", TWIN_TOPIC, "--why", "for good")
    assert RetiredTopic.objects.get().why == "for good"
    assert RetiredTopic.objects.get().retired_at == since
    assert "not retired any more" in run("unretire", TWIN_TOPIC)
    with pytest.raises(CommandError, match="is not retired"):
        run("unretire", TWIN_TOPIC)


def test_ledger_command_reports_topics_that_no_consumer_reads() -> None:
    add_read_partition(TOPIC)
    Ledger.objects.update(checked_at=NOW - timedelta(minutes=2))
    output = run()
    assert (
        output.count(f"no consumer since {NOW - timedelta(minutes=2):%Y-%m-%d %H:%M:%S} UTC") == 2
    )
    assert f"NOT YET READ {TWIN_TOPIC}" in output
    assert f"NOT YET READ {TOPIC}:" not in output
    assert TWIN_TOPIC in json.loads(run("--json"))["neverRead"]


def test_ledger_command_reports_topic_of_removed_kind_until_topic_is_retired() -> None:
    """The topic might still get messages that no consumer reads."""
    add_read_partition(TOPIC)
    add_read_partition("taken.out", high_watermark=12)
    output = run()
    assert "NOT READ taken.out: no kind declares this topic any more" in output
    assert "not read: no kind declares it" in output
    assert json.loads(run("--json"))["undeclared"] == ["taken.out"]
    run("retire", "taken.out", "--why", "the shop has closed")
    assert "NOT READ" not in run()
    assert json.loads(run("--json"))["undeclared"] == []
    run("unretire", "taken.out")
    assert "NOT READ taken.out" in run()


def test_metrics_leave_out_retired_topic(client: Client) -> None:
    add_read_partition(TOPIC)
    add_read_partition(TWIN_TOPIC, high_watermark=99)
    ledger_rows.retire_topic(TWIN_TOPIC, "the migration ended")
    text = client.get("/metrics").content.decode()
    for name in ("annals_store_lag", "annals_store_seen_timestamp_seconds"):
        assert f'{name}{{partition="0",topic="{TOPIC}"}}' in text
        assert f'{name}{{partition="0",topic="{TWIN_TOPIC}"}}' not in text


def test_completeness_of_child_kind_ignores_topics_of_other_kinds(ingested: Ingested) -> None:
    child = BY_NAME["product-car"]
    for topic in child.topics:
        with open_connection() as plain:
            claim = ledger.claim_partition(plain, TopicPartition(topic, "t", 0), 0)
            ledger.record_heartbeat(plain, {claim: 0}, time.monotonic())
    assert complete_to.read_completeness([child]).complete_to is not None
    assert complete_to.read_completeness([ROOT]).complete_to is None
