"""Retention removes search keys and quarantined messages, and the ledger counts stay right."""

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from history.kinds.entities import ROOT
from history.models import MaintainRun
from history.retention import search_keys as search_retention
from history.store.days import days
from history.store.days.window import Window
from ingest.quarantine import messages
from ingest.quarantine.messages import MessageSelection
from ingest.store.session import open_connection
from tests.db.ingested import Ingested, find_faults, list_quarantined, query, read_counts
from tests.db.partitioned import retire_all_topics, run_partitions
from tests.db.test_quarantine import retry_selected, select_message
from tests.messages import NOW, SOURCE, make_value

HOLD = 7
EARLIER = Window.at(NOW - timedelta(days=30), 30, 1)


def get_moment_after(days_later: int) -> datetime:
    return NOW + timedelta(days=days_later, hours=1)


def remove_old_messages(days_later: int) -> int:
    """Remove old messages from quarantine as if `days_later` days had passed; return how many."""
    window = Window.at(NOW + timedelta(days=days_later), 90, 14)
    with open_connection() as plain:
        return messages.remove_old_messages(plain, window, HOLD, get_moment_after(days_later))


def quarantine_four_messages_with_different_statuses(ingested: Ingested) -> None:
    """Quarantine four messages at the offsets 0 to 3.

    A retry stores the first message. The second message is discarded. The third message has no
    attempts left. The fourth message waits for a retry.
    """
    batch = ingested.make_batch()
    ingested.fill(batch, make_value(id="secret"), window=EARLIER)
    ingested.fill(batch, b"discarded", b"failed", make_value(id=""))
    ingested.store(batch)
    stored, discarded, failed, _ = (row["id"] for row in list_quarantined())
    assert retry_selected(**select_message(stored)) == {"stored": 1}
    with open_connection() as plain:
        messages.discard_messages(plain, MessageSelection(**select_message(discarded)), "agreed")
    for _ in range(messages.MAX_ATTEMPTS):
        retry_selected(**select_message(failed))
    assert [row["status"] for row in list_quarantined()] == [
        "resolved",
        "discarded",
        "failed",
        "new",
    ]


def test_retention_removes_quarantined_messages_and_keeps_counts(ingested: Ingested) -> None:
    quarantine_four_messages_with_different_statuses(ingested)
    before = read_counts()
    assert remove_old_messages(90) == 0
    assert remove_old_messages(91) == 2
    assert [row["offset"] for row in list_quarantined()] == [2, 3]
    assert remove_old_messages(97) == 0
    assert remove_old_messages(98) == 2
    assert list_quarantined() == []
    assert read_counts() == before
    assert find_faults() == []


@pytest.mark.parametrize(
    "moment, version, removed_after",
    [
        # As in a backfill: the version is old, so its day is dropped soon; a hold adds days.
        (-80, -1, 18),
        ("2001-01-01T00:00:00", -1, 7),  # older than retention: kept for the days of a hold
        ("9999-01-01T00:00:00", 1, 98),  # in the future: kept like a version of today
        (20, 1, 118),  # by then a retry can store the version
    ],
)
def test_quarantined_message_is_removed_with_day_of_its_version(
    ingested: Ingested, moment: str | int, version: int, removed_after: int
) -> None:
    """`moment` is the moment of the version: a text, or a number of days from now that is negative
    for the past. The message is removed `removed_after` days from now."""
    updated_at = moment if isinstance(moment, str) else (NOW + timedelta(days=moment)).isoformat()
    ingested.write(make_value(updatedAt=updated_at, version=version))
    assert remove_old_messages(removed_after - 1) == 0
    assert remove_old_messages(removed_after) == 1
    assert find_faults() == []


def test_retention_removes_thousands_of_quarantined_messages_and_skips_locked_ones(
    ingested: Ingested,
) -> None:
    """The next run removes the messages that a retry had locked."""
    ingested.write(*[b"bad"] * 2_500)
    with open_connection() as worker, worker.transaction():
        assert len(messages.lock_messages(worker, MessageSelection(), 10)) == 10
        assert remove_old_messages(98) == 2_490
    assert len(list_quarantined()) == 10
    assert remove_old_messages(98) == 10
    assert read_counts() == {"next_offset": 2_500, "read": 2_500, "quarantined": 2_500}
    assert find_faults() == []


def test_ledger_counts_stay_right_when_quarantined_messages_are_removed_while_topic_is_reread(
    ingested: Ingested,
) -> None:
    ingested.write(b"bad", b"bad", b"bad")
    with open_connection("test") as plain:
        plain.execute("DELETE FROM ingest_ledger WHERE topic = %s", [SOURCE.topic])
    ingested.claim()
    ingested.next[SOURCE] = 0
    ingested.write(b"bad")
    assert remove_old_messages(98) == 3
    assert find_faults() == []
    ingested.write(b"bad", b"bad")
    assert read_counts()["quarantined"] == 3
    assert find_faults() == []


def list_keys() -> list[str]:
    return [row["value"] for row in query("SELECT value FROM search_key ORDER BY value")]


def make_numbered_message(number: str, days_ago: int) -> bytes:
    moment = NOW - timedelta(days=days_ago)
    return make_value(id=f"id-{number}", updatedAt=moment.isoformat(), data={"number": number})


def test_search_key_is_removed_with_its_newest_version(ingested: Ingested) -> None:
    ingested.write(
        make_numbered_message("old", 30),
        make_numbered_message("kept", 20),
        make_numbered_message("young", 3),
    )
    before = (NOW - timedelta(days=20)).date()
    with open_connection() as plain:
        assert search_retention.remove_old_keys(plain, before) == 1
    assert list_keys() == ["kept", "young"]


@pytest.mark.plain_only("a cluster waits for a locked key")
def test_retention_keeps_search_key_that_is_stored_meanwhile(ingested: Ingested) -> None:
    ingested.write(*(make_numbered_message(name, 30) for name in ("a", "b", "c")))
    before = (NOW - timedelta(days=20)).date()
    with open_connection() as plain, ingested.writer.connection.transaction():
        ingested.writer.connection.execute("UPDATE search_key SET day = now() WHERE value = 'b'")
        assert search_retention.remove_old_keys(plain, before) == 2
    assert list_keys() == ["b"]


def test_consumer_stores_search_key_again_after_waiting_for_its_removal(
    ingested: Ingested,
) -> None:
    ingested.write(make_numbered_message("a", 30))
    batch = ingested.make_batch(make_value(id="id-a", data={"number": "a"}))
    storing = threading.Thread(target=ingested.store, args=(batch,))
    with open_connection() as plain:
        with plain.transaction():
            assert search_retention.remove_old_keys(plain, NOW.date()) == 1
            storing.start()
            storing.join(0.3)
            assert storing.is_alive()
        storing.join(120)
    assert list_keys() == ["a"]


def test_search_keys_are_removed_in_portions(
    ingested: Ingested, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_retention, "PAGES_AT_ONCE", 3)
    with open_connection("test") as plain:
        plain.execute(
            "INSERT INTO search_key SELECT 'v' || n, 'number', 'product-instance', 'id',"
            " now()::date - n % 100 FROM generate_series(1, 3000) n"
        )
        removed = search_retention.remove_old_keys(plain, (NOW - timedelta(days=50)).date())
    assert removed == len([n for n in range(1, 3001) if n % 100 > 50])
    assert len(list_keys()) == 3_000 - removed


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("few_days")
def test_maintain_removes_quarantined_messages_in_each_run_and_search_keys_once_a_day(
    ingested: Ingested, set_clock: Callable[[datetime], None]
) -> None:
    ingested.write(make_numbered_message("old", 10), b"bad")
    four: dict[str, Any] = {"number": "new"}
    ingested.write(make_value(id="new", data=four))
    retire_all_topics()
    set_clock(get_moment_after(22))
    output = run_partitions("maintain").out
    assert "removed: 2 search keys, 1 message in quarantine" in output
    assert (list_keys(), list_quarantined()) == ([], [])
    assert find_faults() == [] or all("versions, the table has" in item for item in find_faults())
    with open_connection("test") as plain:
        plain.execute("INSERT INTO search_key VALUES ('x', 'number', 'y', 'z', '2001-01-01')")
    run_partitions("maintain")
    assert list_keys() == ["x"]
    set_clock(get_moment_after(23))
    run_partitions("maintain")
    assert list_keys() == []
    MaintainRun.objects.all().delete()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("few_days")
def test_retention_keeps_search_keys_of_held_day(
    ingested: Ingested, set_clock: Callable[[datetime], None]
) -> None:
    ingested.write(
        make_numbered_message("held", 0), make_numbered_message("gone", 5), make_value(id="")
    )
    retire_all_topics()
    set_clock(get_moment_after(16))
    assert run_partitions("maintain").code == 1
    assert list_keys() == ["held"]
    with open_connection("test") as plain:
        assert days.locate_day(plain, ROOT.table, NOW.date()).state is days.DayState.ATTACHED
    MaintainRun.objects.all().delete()
