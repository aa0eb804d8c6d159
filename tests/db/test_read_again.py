"""A topic is read again after its ledger rows were deleted, as docs/kafka.md says."""

from datetime import timedelta

from history.daily.window import Window
from ingest.quarantine import messages
from ingest.quarantine.messages import UNSETTLED, Selection, retry
from ingest.store.session import connect
from tests.db.ingested import Ingested, counts, faults, ids, quarantined
from tests.messages import NOW, SOURCE, WINDOW, value

EARLIER = Window.at(NOW - timedelta(days=30), 30, 1)
# Good, bad, discarded, too early at first, resolved by a retry, bad.
BODIES = [value(id="a"), b"bad", b"discarded", value(id="later"), value(id="tried"), b"worse"]


def read_before(ingested: Ingested) -> dict[int, int]:
    """The ids in quarantine by offset, after the first reading."""
    batch = ingested.batch(*BODIES[:3])
    ingested.fill(batch, *BODIES[3:], window=EARLIER)
    ingested.store(batch)
    found = {held["offset"]: held["id"] for held in quarantined()}
    with connect() as plain:
        messages.discard(plain, Selection((found[2],), statuses=UNSETTLED), "agreed")
        assert list(retry(plain, Selection((found[4],), statuses=UNSETTLED), lambda: WINDOW)) == [
            {"stored": 1}
        ]
        list(retry(plain, Selection((found[1],), statuses=UNSETTLED), lambda: WINDOW))
    assert counts() == {"next_offset": 6, "read": 6, "stored": 2, "quarantined": 4}
    assert faults() == []
    return found


def start_again(ingested: Ingested) -> None:
    with connect("test") as plain:
        assert plain.execute("DELETE FROM ingest_ledger WHERE topic = %s", [SOURCE.topic]).rowcount
    ingested.claim()
    ingested.next[SOURCE] = 0


def state() -> dict[int, tuple[str, str, int]]:
    return {held["offset"]: (held["status"], held["reason"], held["attempts"])
            for held in quarantined()}  # fmt: skip


def test_what_was_bad_is_the_same_message_in_quarantine(ingested: Ingested) -> None:
    ids_before = read_before(ingested)
    start_again(ingested)
    ingested.write(*BODIES)
    assert ids() == ["a", "later", "tried"]
    assert counts() == {
        "next_offset": 6,
        "read": 6,
        "stored": 1,
        "repeated": 2,
        "quarantined": 3,
    }
    assert state() == {
        1: ("retrying", "not_json", 1),
        2: ("discarded", "not_json", 0),
        3: ("resolved", "in_the_future", 0),
        4: ("resolved", "in_the_future", 1),
        5: ("new", "not_json", 0),
    }
    assert {held["offset"]: held["id"] for held in quarantined()} == ids_before
    assert {held["outcome"] for held in quarantined() if held["offset"] == 3} == {"read again"}
    # The ledger of this test is newer than the table; all other sums add up.
    assert [each for each in faults() if "says the ledger" not in each] == []


def test_a_resolved_message_that_is_bad_again_is_new(ingested: Ingested) -> None:
    read_before(ingested)
    start_again(ingested)
    batch = ingested.batch()
    ingested.fill(batch, *BODIES, window=EARLIER)
    ingested.store(batch)
    found = state()
    assert found[4] == ("new", "in_the_future", 0)
    assert found[2] == ("discarded", "not_json", 0)
    assert counts()["quarantined"] == 6
    assert [each for each in faults() if "says the ledger" not in each] == []


def test_a_retry_before_the_message_is_read_again(ingested: Ingested) -> None:
    """The ledger does not count the message yet, so the retry moves no count."""
    found = read_before(ingested)
    start_again(ingested)
    ingested.write(*BODIES[:2])
    with connect() as plain:
        assert list(retry(plain, Selection((found[3],), statuses=UNSETTLED), lambda: WINDOW)) == [
            {"stored": 1}
        ]
    assert counts() == {"next_offset": 2, "read": 2, "repeated": 1, "quarantined": 1}
    ingested.write(*BODIES[2:])
    assert counts()["quarantined"] == 3
    assert counts()["repeated"] == 3
    assert [each for each in faults() if "says the ledger" not in each] == []
