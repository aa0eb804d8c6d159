"""The quarantine's life: tried again, given up, settled, read again; the ledger moves with it."""

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from django.core.management import CommandError

from history.daily import days
from history.daily.window import Window
from history.entities import BY_TOPIC, ROOT
from history.record import Record
from ingest.quarantine import messages
from ingest.quarantine.messages import UNSETTLED, Selection, retry
from ingest.source.decode import Reason, RejectedMessage, decode
from ingest.source.message import Message
from ingest.store import retry_store
from ingest.store.session import open_connection
from tests.db.commands import printed
from tests.db.ingested import (
    TWIN_SOURCE,
    Ingested,
    counts,
    faults,
    ids,
    quarantined,
    query,
    retried,
)
from tests.messages import NOW, SOURCE, TOPIC, WINDOW, value, with_data

ANY = Selection()
OTHER_TOPIC = ROOT.topics[1]
EARLIER = Window.at(NOW - timedelta(days=30), 30, 1)


def store_too_early(ingested: Ingested, *bodies: bytes) -> None:
    """Put messages into quarantine because they are dated after the newest day; later they are
    good."""
    ingested.write(*bodies, window=EARLIER)
    assert {held["reason"] for held in quarantined()} == {"in_the_future"}


def again(**selected: Any) -> Counter[str]:
    with open_connection() as plain:
        return retried(plain, **selected)


def this(id: int) -> dict[str, Any]:
    """How to select one message, whatever was tried with it."""
    return {"ids": (id,), "statuses": UNSETTLED}


def statuses() -> Counter[str]:
    return Counter(held["status"] for held in quarantined())


def test_what_is_good_by_now_is_stored_and_counted(ingested: Ingested) -> None:
    store_too_early(ingested, value(id="a"), value(id="b"))
    ingested.write(b"bad", value(id="c"))
    assert again() == {"stored": 2, "retrying": 1}
    assert ids() == ["a", "b", "c"]
    assert statuses() == {"resolved": 2, "retrying": 1}
    assert counts() == {"next_offset": 4, "read": 4, "stored": 3, "quarantined": 1}
    assert faults() == []
    assert again() == {"retrying": 1}


def test_what_is_stored_by_now_is_a_repeat(ingested: Ingested) -> None:
    store_too_early(ingested, value(id="a"))
    ingested.write(value(id="a"))
    assert again() == {"repeated": 1}
    assert counts() == {"next_offset": 2, "read": 2, "stored": 1, "repeated": 1}
    assert faults() == []


def test_what_is_stored_otherwise_by_now_stays(ingested: Ingested) -> None:
    store_too_early(ingested, value(id="a", author="x"))
    ingested.write(value(id="a"))
    assert again() == {"retrying": 1}
    assert quarantined()[0]["reason"] == "divergent_duplicate"
    assert faults() == []


def test_why_it_came_stays_known_when_a_retry_fails_otherwise(
    ingested: Ingested, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingested.write(with_data(b"[]", id="a"))
    [came] = quarantined()
    assert (came["reason"], came["first_reason"]) == ("bad_data", "")

    def undeclared(*_: Any) -> Record:
        raise RejectedMessage(Reason.UNKNOWN_TOPIC, "no kind is declared")

    for failing in (undeclared, decode, undeclared):
        monkeypatch.setattr(retry_store, "decode", failing)
        again()
        [held] = quarantined()
        assert (held["first_reason"], held["first_detail"]) == ("bad_data", came["detail"])
    assert (held["reason"], held["detail"]) == ("unknown_topic", "no kind is declared")
    shown = command("show", str(held["id"]))
    assert "reason: unknown_topic" in shown
    assert f"first reason: bad_data\nfirst detail: {came['detail']}\n" in shown
    assert json.loads(command("list", "--ids", "--json"))[0]["first_reason"] == "bad_data"


def test_which_version_it_is_stays_known_without_its_kind(
    ingested: Ingested, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingested.write(with_data(b"[]", id="a"))
    named = {name: quarantined()[0][name] for name in ("entity", "entity_id", "version")}
    assert named["entity_id"] == "a"
    # Its own copy: an entry that is put back comes last, and other tests see the order.
    others = {topic: entity for topic, entity in BY_TOPIC.items() if topic != TOPIC}
    for module in ("decode", "names"):
        monkeypatch.setattr(f"ingest.source.{module}.BY_TOPIC", others)
    assert again() == {"retrying": 1}
    [held] = quarantined()
    assert (held["reason"], held["first_reason"]) == ("unknown_topic", "bad_data")
    assert {name: held[name] for name in named} == named


def test_search_finds_what_a_retry_stored(ingested: Ingested) -> None:
    store_too_early(ingested, value(id="a", data={"realtyCrmId": "CRM-9"}))
    again()
    assert [row["id"] for row in query("SELECT id FROM search_key WHERE value = 'CRM-9'")] == ["a"]


def test_poison_stays_whatever_is_around_it(ingested: Ingested) -> None:
    store_too_early(ingested, value(id="a"), with_data(rb'{"a":1e400000}', id="b"), value(id="c"))
    assert again() == {"stored": 2, "retrying": 1}
    assert ids() == ["a", "c"]
    [held] = [row for row in quarantined() if row["status"] == "retrying"]
    assert held["reason"] == "number_out_of_range"
    assert faults() == []


def test_pauses_grow_and_then_it_is_given_up(ingested: Ingested) -> None:
    ingested.write(b"bad")
    pauses = []
    for attempt in range(1, messages.MAX_ATTEMPTS + 1):
        [was] = again().elements()
        [held] = query("SELECT *, extract(epoch FROM next_attempt - now()) AS pause"
                       " FROM ingest_quarantine")  # fmt: skip
        assert held["attempts"] == attempt
        assert held["status"] == was
        pauses.append(held["pause"])
    assert was == "failed"
    assert pauses.pop() is None
    assert all(float(longer / shorter) > 1.9 for shorter, longer in pairwise(pauses))
    assert again() == {}
    assert again(**this(held["id"])) == {"failed": 1}
    assert faults() == []


def test_only_what_is_due(ingested: Ingested) -> None:
    ingested.write(b"bad", b"worse")
    assert again(due_only=True) == {}
    with open_connection("test") as plain:
        plain.execute('UPDATE ingest_quarantine SET next_attempt = now() WHERE "offset" = 1')
    assert again(due_only=True) == {"retrying": 1}
    assert [held["attempts"] for held in quarantined()] == [0, 1]


def test_only_what_is_selected(ingested: Ingested) -> None:
    ingested.write(b"bad", value(id=""), b"bad")
    assert again(reason="bad_field") == {"retrying": 1}
    assert again(topic="another") == {}
    assert again(**this(quarantined()[0]["id"])) == {"retrying": 1}
    assert [held["attempts"] for held in quarantined()] == [1, 1, 0]


def test_several_workers_never_take_the_same(ingested: Ingested) -> None:
    ingested.write(*[b"bad"] * 10)
    with open_connection() as one, open_connection() as other:
        with one.transaction():
            mine = {held.id for held in messages.lock(one, ANY, 6)}
            with other.transaction():
                theirs = {held.id for held in messages.lock(other, ANY, 100)}
            assert (len(mine), len(theirs)) == (6, 4)
            assert not mine & theirs
        assert len(messages.lock(other, ANY, 100)) == 10


def test_two_retries_at_once_do_not_deadlock(
    ingested: Ingested, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes 100 messages of two topics, in opposite orders of topics and of rows, and meets
    the other half way."""
    names = [f"{number:03}" for number in range(50)]
    for source, of_source in (
        (SOURCE, names), (TWIN_SOURCE, names), (TWIN_SOURCE, names[::-1]), (SOURCE, names[::-1]),
    ):  # fmt: skip
        ingested.write(*(value(id=id) for id in of_source), source=source, window=EARLIER)
    half_way = threading.Barrier(2)
    decoded: Counter[int] = Counter()

    def decode_and_wait(message: Message, window: Window) -> Record:
        decoded[threading.get_ident()] += 1
        if decoded[threading.get_ident()] == 51:
            half_way.wait(20)
        return decode(message, window)

    monkeypatch.setattr(retry_store, "decode", decode_and_wait)
    with open_connection() as plain:
        days.create(plain, ROOT.table, NOW.date())
    with ThreadPoolExecutor(2) as pool:
        outcomes = [each.result() for each in [pool.submit(again), pool.submit(again)]]
    assert sum(outcomes, Counter()) == {"stored": 50, "repeated": 150}
    assert statuses() == {"resolved": 200}
    assert faults() == []


def test_many_are_tried_a_few_at_a_time(ingested: Ingested) -> None:
    store_too_early(ingested, *(value(id=str(number)) for number in range(250)))
    with open_connection() as plain:
        few = [group.total() for group in retry(plain, ANY, lambda: WINDOW)]
    assert sum(few) == 250
    assert len(few) == 3
    assert len(ids()) == 250
    assert faults() == []


def test_discarded_ones_are_settled_and_stay_counted(ingested: Ingested) -> None:
    ingested.write(b"bad", b"bad", value(id="a"))
    first = quarantined()[0]["id"]
    with open_connection() as plain:
        for why, discarded in (("a test of theirs", 1), ("again", 0)):
            assert messages.discard(plain, Selection(**this(first)), why) == discarded
    held = quarantined()[0]
    assert (held["status"], held["outcome"]) == ("discarded", "a test of theirs")
    assert again() == {"retrying": 1}
    assert counts() == {"next_offset": 3, "read": 3, "stored": 1, "quarantined": 2}
    assert faults() == []


command = partial(printed, "quarantine")


def test_the_command_lists_by_reason_and_shows_bytes(ingested: Ingested) -> None:
    assert "is empty" in command("list")
    ingested.write(b"\xff bad", b"{", value(version=-1))
    groups: list[dict[str, Any]] = json.loads(command("list", "--json"))
    assert [(each["topic"], each["reason"], each["count"]) for each in groups] == [
        (TOPIC, "bad_field", 1),
        (TOPIC, "not_json", 2),
    ]
    first = str(quarantined()[0]["id"])
    shown = command("show", first)
    assert "offset: 0" in shown
    assert r"value (5 bytes): \xff bad" in shown
    each = json.loads(command("list", "--ids", "--json", "--reason", "bad_field"))
    assert [row["offset"] for row in each] == [2]
    with pytest.raises(CommandError, match="no message 0 in quarantine"):
        command("show", "0")


def test_a_filter_that_finds_nothing_does_not_say_that_nothing_is_there(
    ingested: Ingested,
) -> None:
    ingested.write(b"no json")
    for each in ((), ("--ids",)):
        assert command("list", "--topic", OTHER_TOPIC, "--reason", "not_json", *each) == (
            f"The quarantine has no message of topic {OTHER_TOPIC} and reason not_json.\n"
        )
        for wrong in (("--topic", "typo"), ("--reason", "not_jsn")):
            with pytest.raises(CommandError, match=r"there is no |invalid choice"):
                command("list", *wrong, *each)
    assert "not_json" in command("list", "--reason", "not_json")


def test_the_command_tries_and_discards(ingested: Ingested) -> None:
    store_too_early(ingested, value(id="a"))
    ingested.write(b"bad")
    assert "No message is due" in command("retry")
    assert "1 stored" in command("retry", "--now", "--reason", "in_the_future")
    assert ids() == ["a"]
    with pytest.raises(CommandError, match="Select messages"):
        command("discard", "--why", "all")
    assert "1 discarded" in command("discard", "--topic", TOPIC, "--why", "no such loan")
    assert statuses() == {"resolved": 1, "discarded": 1}
    assert faults() == []
    assert counts(SOURCE)["quarantined"] == 1


# Good, bad, discarded, too early at first, resolved by a retry, bad.
BODIES = [value(id="a"), b"bad", b"discarded", value(id="later"), value(id="tried"), b"worse"]


def read_before(ingested: Ingested) -> dict[int, int]:
    """The ids in quarantine by offset, after the first reading."""
    batch = ingested.batch(*BODIES[:3])
    ingested.fill(batch, *BODIES[3:], window=EARLIER)
    ingested.store(batch)
    found = {held["offset"]: held["id"] for held in quarantined()}
    with open_connection() as plain:
        messages.discard(plain, Selection(**this(found[2])), "agreed")
    assert again(**this(found[4])) == {"stored": 1}
    again(**this(found[1]))
    assert counts() == {"next_offset": 6, "read": 6, "stored": 2, "quarantined": 4}
    assert faults() == []
    return found


def start_again(ingested: Ingested) -> None:
    with open_connection("test") as plain:
        assert plain.execute("DELETE FROM ingest_ledger WHERE topic = %s", [SOURCE.topic]).rowcount
    ingested.claim()
    ingested.next[SOURCE] = 0


def by_offset() -> dict[int, tuple[str, str, int]]:
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
    assert by_offset() == {
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
    ingested.write(*BODIES, window=EARLIER)
    found = by_offset()
    assert found[4] == ("new", "in_the_future", 0)
    assert found[2] == ("discarded", "not_json", 0)
    assert counts()["quarantined"] == 6
    assert [each for each in faults() if "says the ledger" not in each] == []


def test_a_retry_before_the_message_is_read_again(ingested: Ingested) -> None:
    """The ledger does not count the message yet, so the retry moves no count."""
    found = read_before(ingested)
    start_again(ingested)
    ingested.write(*BODIES[:2])
    assert again(**this(found[3])) == {"stored": 1}
    assert counts() == {"next_offset": 2, "read": 2, "repeated": 1, "quarantined": 1}
    ingested.write(*BODIES[2:])
    assert counts()["quarantined"] == 3
    assert counts()["repeated"] == 3
    assert [each for each in faults() if "says the ledger" not in each] == []
