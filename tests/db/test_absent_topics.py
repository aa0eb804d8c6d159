"""A topic that the brokers report as absent holds no days.

If it is not known whether a topic exists, this topic holds old days, because it might have unread
messages.
"""

import time
from collections.abc import Sequence
from datetime import timedelta

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from annals.operations import metrics_page
from annals.operations.alert_checks import collect_values
from history.common import clock
from history.completeness import complete_to
from history.kinds.entities import BY_TOPIC, ENTITIES
from ingest.completeness import holds, ledger_rows
from ingest.models import AskedTopic, Ledger
from ingest.store import ledger
from ingest.store.session import open_connection
from tests.db.commands import read_output
from tests.db.ingest_rows import create_ledger_row
from tests.db.partitioned import TABLE, record_topic_as_read

pytestmark = pytest.mark.django_db
LIVE = [entity.topics[0] for entity in ENTITIES]
MIGRATION = [topic for entity in ENTITIES for topic in entity.topics[1:]]
DAY = clock.now().date() - timedelta(days=4)


def record_answer_of_brokers(
    present_topics: Sequence[str], absent: Sequence[str], age: float = 0
) -> None:
    """Record which topics exist, as if the brokers had answered a consumer `age` seconds ago."""
    with open_connection() as plain:
        ledger.record_topics(plain, present_topics, absent, time.monotonic() - age)


@pytest.fixture
def live_topics_as_read(transactional_db: None) -> None:
    """Record all topics except the migration twins as read to the end."""
    for topic in LIVE:
        record_topic_as_read(topic)


def test_days_are_held_when_it_is_not_known_whether_topic_exists(live_topics_as_read: None) -> None:
    reasons = holds.find_days_to_hold({(TABLE, DAY)})
    assert reasons == {(TABLE, DAY): f"{BY_TOPIC[LIVE[0]].topics[1]} was never read"}
    assert complete_to.read_completeness(ENTITIES).complete_to is None


def test_days_are_not_held_and_store_is_complete_to_now_when_migration_topics_do_not_exist(
    live_topics_as_read: None,
) -> None:
    record_answer_of_brokers(LIVE, MIGRATION)
    assert holds.find_days_to_hold({(TABLE, DAY)}) == {}
    fresh = complete_to.read_completeness(ENTITIES)
    assert fresh.complete_to is not None
    assert clock.now() - fresh.complete_to < timedelta(minutes=1)
    assert (fresh.lag_messages, fresh.silence) == (0, None)
    entries = ledger_rows.load_entries()
    assert ledger_rows.find_never_read_topics(entries) == []
    assert list(ledger_rows.find_absent_topics(entries)) == [
        topic for topic in BY_TOPIC if topic in MIGRATION
    ]
    assert collect_values(metrics_page.STORE_COLLECTOR.collect())[
        "annals_store_topics_never_read"
    ] == {(): 0}


def test_days_are_held_and_complete_to_is_over_a_day_old_when_last_answer_of_brokers_is_old(
    live_topics_as_read: None,
) -> None:
    record_answer_of_brokers(LIVE, MIGRATION, age=2 * 86_400)
    [reason] = holds.find_days_to_hold({(TABLE, DAY)}).values()
    assert reason.startswith("no consumer has asked since ")
    assert reason.endswith(f"whether {BY_TOPIC[LIVE[0]].topics[1]} exists")
    fresh = complete_to.read_completeness(ENTITIES)
    assert fresh.complete_to is not None
    assert clock.now() - fresh.complete_to > timedelta(days=1)
    assert fresh.silence is not None


def test_days_are_held_as_soon_as_missing_topic_appears(live_topics_as_read: None) -> None:
    record_answer_of_brokers(LIVE, MIGRATION, age=10)
    record_answer_of_brokers([*LIVE, *MIGRATION], [])
    assert set(ledger_rows.find_never_read_topics(ledger_rows.load_entries())) == set(MIGRATION)
    assert holds.find_days_to_hold({(TABLE, DAY)}) != {}
    assert complete_to.read_completeness(ENTITIES).complete_to is None


def test_older_answer_of_brokers_is_ignored_when_written_after_newer_answer(
    live_topics_as_read: None,
) -> None:
    record_answer_of_brokers(LIVE, MIGRATION, age=30)
    record_answer_of_brokers([*LIVE, *MIGRATION], [], age=10)
    record_answer_of_brokers(LIVE, MIGRATION, age=20)
    assert not AskedTopic.objects.filter(absent=True).exists()
    record_answer_of_brokers(LIVE, MIGRATION, age=5)
    record_answer_of_brokers([*LIVE, *MIGRATION], [], age=8)
    assert AskedTopic.objects.filter(absent=True).count() == len(MIGRATION)


def test_days_are_held_after_a_topic_was_read_and_then_deleted(live_topics_as_read: None) -> None:
    """The topic might have had unread messages when somebody deleted it."""
    deleted = BY_TOPIC[LIVE[0]].topics[1]
    create_ledger_row(deleted, high_watermark=12, end_known_at=clock.now())
    record_answer_of_brokers(LIVE, MIGRATION)
    assert "2 messages" in holds.find_days_to_hold({(TABLE, DAY)})[TABLE, DAY]
    assert deleted not in ledger_rows.find_absent_topics(ledger_rows.load_entries())


def test_completeness_page_reports_that_a_topic_does_not_exist(
    live_topics_as_read: None, client: Client
) -> None:
    lost = LIVE[0]
    Ledger.objects.filter(topic=lost).delete()
    record_answer_of_brokers(LIVE[1:], [lost, *MIGRATION])
    assert collect_values(metrics_page.STORE_COLLECTOR.collect())[
        "annals_store_topics_never_read"
    ] == {(): 1}
    client.force_login(User.objects.create_superuser("reader"))
    client.cookies[settings.LANGUAGE_COOKIE_NAME] = "en"
    page = client.get("/admin/completeness/")
    page_text = page.content.decode()
    assert f"{lost} does not exist: services cannot send changes to it." in page_text
    assert "Topics that do not exist; they are read as soon as they do:" in page_text
    output = read_output("ledger", "--offline")
    assert f"ABSENT {lost}: it did not exist at " in output
    assert "create it" in output
    assert "a migration topic may be absent" in output
