"""Up to which moment everything is here: from what is known of the end of every topic partition."""

import json
import time
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.core.management import CommandError
from django.test import Client

from history import complete_to
from history.base import clock
from history.entities import BY_NAME, ROOT
from ingest.completeness import figures
from ingest.models import Ledger, RetiredTopic
from ingest.source.message import TopicPartition
from ingest.store import ledger
from ingest.store.ledger import Claim
from ingest.store.session import open_connection
from tests.db.commands import printed
from tests.db.ingested import Ingested, query
from tests.db.noted import ledger_row
from tests.messages import SOURCE, TWIN, value

TOPIC = SOURCE.topic
NOW = clock.now()
pytestmark = pytest.mark.django_db


def known(topic: str, partition: int = 0, **given: Any) -> Ledger:
    """A ledger row: all of ten messages are read, which was seen two minutes ago."""
    given.setdefault("end_known_at", NOW - timedelta(minutes=2))
    return ledger_row(topic, partition=partition, **given)


def answer() -> tuple[datetime | None, int | None]:
    found = complete_to.read([ROOT])
    return found.complete_to, found.lag_messages


def empty(topic: str, partition: int, **given: Any) -> Ledger:
    counts = {"next_offset": 0, "read": 0, "stored": 0}
    return known(topic, partition, **{**counts, "high_watermark": 0, **given})


def test_partitions_that_never_had_a_message_are_complete() -> None:
    known(TOPIC)
    empty(TOPIC, 1)
    empty(TWIN, 0, end_known_at=NOW - timedelta(minutes=3))
    assert answer() == (NOW - timedelta(minutes=3), 0)


def test_an_end_that_is_not_known_is_not_taken_for_empty() -> None:
    known(TOPIC)
    empty(TWIN, 0, high_watermark=None, end_known_at=None)
    assert answer() == (None, None)


@pytest.mark.parametrize("topic", ROOT.topics)
def test_a_topic_that_was_never_read_may_hold_anything(topic: str) -> None:
    known(topic)
    assert answer() == (None, None)


def test_a_finished_topic_neither_freezes_nor_hides_anything() -> None:
    """Nobody reads the migration topic any more: what is known of its end grows old."""
    known(TOPIC)
    known(TWIN, end_known_at=NOW - timedelta(days=30))
    assert answer() == (NOW - timedelta(days=30), 0)
    figures.retire(TWIN, "the migration ended")
    assert answer() == (NOW - timedelta(minutes=2), 0)
    assert figures.unretire(TWIN)
    assert answer() == (NOW - timedelta(days=30), 0)


def test_behind_the_end_it_is_the_newest_message_read_but_not_a_time_of_the_future() -> None:
    known(TWIN)
    behind = known(TOPIC, high_watermark=12, newest_timestamp=NOW - timedelta(hours=1))
    assert answer() == (NOW - timedelta(hours=1), 2)
    behind.newest_timestamp = NOW + timedelta(days=900)
    behind.save()
    assert answer() == (NOW - timedelta(minutes=2), 2)


def seconds_known(topic: str = TOPIC) -> float | None:
    """How long ago the end of a partition was known."""
    [row] = query("SELECT extract(epoch FROM now() - end_known_at)::float8 AS age"
                  " FROM ingest_ledger WHERE topic = %s", topic)  # fmt: skip
    return None if row["age"] is None else float(row["age"])


def beat(claim: Claim, end: int | None, seen_at: float | None) -> None:
    with open_connection() as plain:
        ledger.record_heartbeat(plain, {claim: end}, seen_at)


def test_a_heartbeat_while_the_brokers_do_not_answer_proves_nothing(ingested: Ingested) -> None:
    """The end offset is still in the client's memory then, but it may be out of date."""
    claim = ingested.claims[SOURCE]
    beat(claim, 0, None)
    assert seconds_known() is None
    beat(claim, 0, time.monotonic() - 100)
    age = seconds_known()
    assert age is not None
    assert 100 <= age < 130
    beat(claim, 0, None)
    beat(claim, None, time.monotonic())
    later = seconds_known()
    assert later is not None
    assert later >= age


def test_a_batch_alone_does_not_make_the_end_known(ingested: Ingested) -> None:
    """Nothing is known of the end while no consumer has seen it: the lag is unknown, not 0."""
    ingested.write(value(id="a"))
    [entry] = [each for each in figures.entries() if each.topic == TOPIC]
    assert entry.lag is None
    beat(ingested.claims[SOURCE], 5, time.monotonic())
    ingested.write(value(id="b"))
    [entry] = [each for each in figures.entries() if each.topic == TOPIC]
    assert entry.lag == 3
    ingested.store(ingested.batch(value(id="c"), value(id="d"), value(id="e"), value(id="f")))
    [entry] = [each for each in figures.entries() if each.topic == TOPIC]
    assert (entry.lag, entry.high_watermark) == (0, 6)


run = partial(printed, "ledger", "--offline")


def test_the_command_retires_and_takes_it_back() -> None:
    known(TOPIC)
    known(TWIN, high_watermark=12)
    assert "2 of its messages were not read" in run("retire", TWIN, "--why", "the migration ended")
    said = run()
    assert "retired: the migration ended" in said
    assert f"RETIRED {TWIN} since {NOW:%Y-%m-%d}: the migration ended" in said
    assert f"NEVER READ {TWIN}" not in said
    found = json.loads(run("--json"))
    assert [(each["topic"], each["why"]) for each in found["retired"]] == [
        (TWIN, "the migration ended")
    ]
    since = RetiredTopic.objects.get().retired_at
    run("retire", TWIN, "--why", "for good")
    assert RetiredTopic.objects.get().why == "for good"
    assert RetiredTopic.objects.get().retired_at == since
    assert "not retired any more" in run("unretire", TWIN)
    with pytest.raises(CommandError, match="is not retired"):
        run("unretire", TWIN)


def test_topics_that_nobody_reads_or_ever_read_are_named() -> None:
    known(TOPIC)
    Ledger.objects.update(checked_at=NOW - timedelta(minutes=2))
    said = run()
    assert said.count(f"no consumer since {NOW - timedelta(minutes=2):%Y-%m-%d %H:%M:%S} UTC") == 2
    assert f"NEVER READ {TWIN}" in said
    assert f"NEVER READ {TOPIC}:" not in said
    assert TWIN in json.loads(run("--json"))["neverRead"]


def test_a_topic_of_a_kind_that_was_taken_out_is_named_until_it_is_retired() -> None:
    """Messages may still come to it, and nobody reads them."""
    known(TOPIC)
    known("taken.out", high_watermark=12)
    said = run()
    assert "NOT READ taken.out: no declared kind has this topic" in said
    assert "not read: of no declared kind" in said
    assert json.loads(run("--json"))["undeclared"] == ["taken.out"]
    run("retire", "taken.out", "--why", "the shop has closed")
    assert "NOT READ" not in run()
    assert json.loads(run("--json"))["undeclared"] == []
    run("unretire", "taken.out")
    assert "NOT READ taken.out" in run()


def test_no_metric_of_a_retired_topic_can_raise_an_alarm(client: Client) -> None:
    known(TOPIC)
    known(TWIN, high_watermark=99)
    figures.retire(TWIN, "the migration ended")
    text = client.get("/metrics").content.decode()
    for name in ("annals_store_lag", "annals_store_seen_timestamp_seconds"):
        assert f'{name}{{partition="0",topic="{TOPIC}"}}' in text
        assert f'{name}{{partition="0",topic="{TWIN}"}}' not in text


def test_a_child_alone_does_not_wait_for_the_topics_of_others(ingested: Ingested) -> None:
    child = BY_NAME["product-car"]
    for topic in child.topics:
        with open_connection() as plain:
            claim = ledger.claim_partition(plain, TopicPartition(topic, "t", 0), 0)
            ledger.record_heartbeat(plain, {claim: 0}, time.monotonic())
    assert complete_to.read([child]).complete_to is not None
    assert complete_to.read([ROOT]).complete_to is None
