"""Messages in quarantine can be retried, discarded, and read again from Kafka. The ledger counts
them."""

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

from history.documents.record import Record
from history.kinds.entities import BY_TOPIC, ROOT
from history.store.days import days
from history.store.days.window import Window
from ingest.messages.decode import Reason, RejectedMessageError, decode
from ingest.messages.explanations import Code, Explanation
from ingest.messages.message import KafkaMessage
from ingest.quarantine import messages
from ingest.quarantine.messages import UNSETTLED, MessageSelection, retry_messages
from ingest.store import retry_store
from ingest.store.session import open_connection
from tests.db.commands import read_output
from tests.db.ingested import (
    TWIN_SOURCE,
    Ingested,
    find_faults,
    list_ids,
    list_quarantined,
    query,
    read_counts,
    retry_quarantined,
)
from tests.messages import NOW, SOURCE, TOPIC, WINDOW, make_value, make_value_with_data

ANY = MessageSelection()
OTHER_TOPIC = ROOT.topics[1]
EARLIER = Window.at(NOW - timedelta(days=30), 30, 1)


def quarantine_messages_from_the_future(ingested: Ingested, *bodies: bytes) -> None:
    """Write messages with an earlier window, so that they are quarantined as `in_the_future`.

    In the current window the messages are valid, so that a retry can store them.
    """
    ingested.write(*bodies, window=EARLIER)
    assert {message_row["reason"] for message_row in list_quarantined()} == {"in_the_future"}


def retry_selected(**selected: Any) -> Counter[str]:
    with open_connection() as plain:
        return retry_quarantined(plain, **selected)


def select_message(id: int) -> dict[str, Any]:
    """Return the filter for one message in quarantine that was neither stored nor discarded."""
    return {"ids": (id,), "statuses": UNSETTLED}


def list_statuses() -> Counter[str]:
    return Counter(message_row["status"] for message_row in list_quarantined())


def test_retry_stores_and_counts_message_that_has_become_valid(ingested: Ingested) -> None:
    quarantine_messages_from_the_future(ingested, make_value(id="a"), make_value(id="b"))
    ingested.write(b"bad", make_value(id="c"))
    assert retry_selected() == {"stored": 2, "retrying": 1}
    assert list_ids() == ["a", "b", "c"]
    assert list_statuses() == {"resolved": 2, "retrying": 1}
    assert read_counts() == {"next_offset": 4, "read": 4, "stored": 3, "quarantined": 1}
    assert find_faults() == []
    assert retry_selected() == {"retrying": 1}


def test_retry_counts_message_as_repeated_when_its_version_was_stored_before_the_retry(
    ingested: Ingested,
) -> None:
    quarantine_messages_from_the_future(ingested, make_value(id="a"))
    ingested.write(make_value(id="a"))
    assert retry_selected() == {"repeated": 1}
    assert read_counts() == {"next_offset": 2, "read": 2, "stored": 1, "repeated": 1}
    assert find_faults() == []


def test_retry_keeps_message_that_differs_from_stored_version(ingested: Ingested) -> None:
    quarantine_messages_from_the_future(ingested, make_value(id="a", author="x"))
    ingested.write(make_value(id="a"))
    assert retry_selected() == {"retrying": 1}
    assert list_quarantined()[0]["reason"] == "divergent_duplicate"
    assert find_faults() == []


def test_first_reason_is_kept_when_retry_fails_for_a_different_reason(
    ingested: Ingested, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingested.write(make_value_with_data(b"[]", id="a"))
    [row] = list_quarantined()
    assert (row["reason"], row["first_reason"]) == ("bad_data", "")

    def raise_undeclared(*_: Any) -> Record:
        raise RejectedMessageError(
            Reason.UNKNOWN_TOPIC, Explanation(Code.UNDECLARED_TOPIC, topic="t")
        )

    for failing in (raise_undeclared, decode, raise_undeclared):
        monkeypatch.setattr(retry_store, "decode", failing)
        retry_selected()
        [quarantine_rows] = list_quarantined()
        assert (quarantine_rows["first_reason"], quarantine_rows["first_detail"]) == (
            "bad_data",
            row["detail"],
        )
    assert (quarantine_rows["reason"], quarantine_rows["detail"]) == (
        "unknown_topic",
        "no kind of entity is declared for topic t",
    )
    output = command("show", str(quarantine_rows["id"]))
    assert "reason: unknown_topic" in output
    assert f"first reason: bad_data\nfirst detail: {row['detail']}\n" in output
    assert json.loads(command("list", "--ids", "--json"))[0]["first_reason"] == "bad_data"


def test_retry_keeps_kind_and_id_and_version_of_message_when_kind_is_no_longer_declared(
    ingested: Ingested, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingested.write(make_value_with_data(b"[]", id="a"))
    labels = {name: list_quarantined()[0][name] for name in ("entity", "entity_id", "version")}
    assert labels["entity_id"] == "a"
    # A copy, because restoring an entry would change the order of the original.
    other_topics = {topic: entity for topic, entity in BY_TOPIC.items() if topic != TOPIC}
    for module in ("messages.decode", "messages.identity"):
        monkeypatch.setattr(f"ingest.{module}.BY_TOPIC", other_topics)
    assert retry_selected() == {"retrying": 1}
    [quarantine_rows] = list_quarantined()
    assert (quarantine_rows["reason"], quarantine_rows["first_reason"]) == (
        "unknown_topic",
        "bad_data",
    )
    assert {name: quarantine_rows[name] for name in labels} == labels


def test_search_finds_version_stored_by_retry(ingested: Ingested) -> None:
    quarantine_messages_from_the_future(ingested, make_value(id="a", data={"realtyCrmId": "CRM-9"}))
    retry_selected()
    assert [row["id"] for row in query("SELECT id FROM search_key WHERE value = 'CRM-9'")] == ["a"]


def test_retry_stores_good_messages_beside_a_bad_one(ingested: Ingested) -> None:
    quarantine_messages_from_the_future(
        ingested,
        make_value(id="a"),
        make_value_with_data(rb'{"a":1e400000}', id="b"),
        make_value(id="c"),
    )
    assert retry_selected() == {"stored": 2, "retrying": 1}
    assert list_ids() == ["a", "c"]
    [quarantine_rows] = [row for row in list_quarantined() if row["status"] == "retrying"]
    assert quarantine_rows["reason"] == "number_out_of_range"
    assert find_faults() == []


def test_pauses_between_retries_grow_until_no_attempts_are_left(ingested: Ingested) -> None:
    ingested.write(b"bad")
    pauses = []
    for attempt in range(1, messages.MAX_ATTEMPTS + 1):
        [was] = retry_selected().elements()
        [quarantine_rows] = query(
            "SELECT *, extract(epoch FROM next_attempt - now()) AS pause FROM ingest_quarantine"
        )
        assert quarantine_rows["attempts"] == attempt
        assert quarantine_rows["status"] == was
        pauses.append(quarantine_rows["pause"])
    assert was == "failed"
    assert pauses.pop() is None
    assert all(float(longer / shorter) > 1.9 for shorter, longer in pairwise(pauses))
    assert retry_selected() == {}
    assert retry_selected(**select_message(quarantine_rows["id"])) == {"failed": 1}
    assert find_faults() == []


def test_retry_takes_only_due_messages(ingested: Ingested) -> None:
    ingested.write(b"bad", b"worse")
    assert retry_selected(due_only=True) == {}
    with open_connection("test") as plain:
        plain.execute('UPDATE ingest_quarantine SET next_attempt = now() WHERE "offset" = 1')
    assert retry_selected(due_only=True) == {"retrying": 1}
    assert [message_row["attempts"] for message_row in list_quarantined()] == [0, 1]


def test_retry_takes_only_selected_messages(ingested: Ingested) -> None:
    ingested.write(b"bad", make_value(id=""), b"bad")
    assert retry_selected(reason="bad_field") == {"retrying": 1}
    assert retry_selected(topic="another") == {}
    assert retry_selected(**select_message(list_quarantined()[0]["id"])) == {"retrying": 1}
    assert [message_row["attempts"] for message_row in list_quarantined()] == [1, 1, 0]


def test_two_workers_never_lock_the_same_message(ingested: Ingested) -> None:
    ingested.write(*[b"bad"] * 10)
    with open_connection() as first_connection, open_connection() as second_connection:
        with first_connection.transaction():
            own_ids = {row.id for row in messages.lock_messages(first_connection, ANY, 6)}
            with second_connection.transaction():
                other_ids = {row.id for row in messages.lock_messages(second_connection, ANY, 100)}
            assert (len(own_ids), len(other_ids)) == (6, 4)
            assert not own_ids & other_ids
        assert len(messages.lock_messages(second_connection, ANY, 100)) == 10


def test_concurrent_retries_do_not_deadlock(
    ingested: Ingested, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two retries take 100 messages each, with topics and rows in opposite orders. The test lets
    them go on only when both have decoded 50 messages."""
    names = [f"{number:03}" for number in range(50)]
    for source, of_source in (
        (SOURCE, names),
        (TWIN_SOURCE, names),
        (TWIN_SOURCE, names[::-1]),
        (SOURCE, names[::-1]),
    ):
        ingested.write(*(make_value(id=id) for id in of_source), source=source, window=EARLIER)
    half_way = threading.Barrier(2)
    decoded: Counter[int] = Counter()

    def decode_and_wait(message: KafkaMessage, window: Window) -> Record:
        decoded[threading.get_ident()] += 1
        if decoded[threading.get_ident()] == 51:
            half_way.wait(120)
        return decode(message, window)

    monkeypatch.setattr(retry_store, "decode", decode_and_wait)
    with open_connection() as plain:
        days.create_partition(plain, ROOT.table, NOW.date())
    with ThreadPoolExecutor(2) as pool:
        outcomes = [
            item.result() for item in [pool.submit(retry_selected), pool.submit(retry_selected)]
        ]
    assert sum(outcomes, Counter()) == {"stored": 50, "repeated": 150}
    assert list_statuses() == {"resolved": 200}
    assert find_faults() == []


def test_retry_commits_in_batches(ingested: Ingested) -> None:
    quarantine_messages_from_the_future(
        ingested, *(make_value(id=str(number)) for number in range(250))
    )
    with open_connection() as plain:
        few = [group.total() for group in retry_messages(plain, ANY, lambda: WINDOW)]
    assert sum(few) == 250
    assert len(few) == 3
    assert len(list_ids()) == 250
    assert find_faults() == []


def test_discarded_message_is_not_retried_and_still_counts_as_quarantined(
    ingested: Ingested,
) -> None:
    ingested.write(b"bad", b"bad", make_value(id="a"))
    first = list_quarantined()[0]["id"]
    with open_connection() as plain:
        for item, discarded in (("a test of theirs", 1), ("again", 0)):
            assert (
                messages.discard_messages(plain, MessageSelection(**select_message(first)), item)
                == discarded
            )
    quarantine_rows = list_quarantined()[0]
    assert (quarantine_rows["status"], quarantine_rows["outcome"]) == (
        "discarded",
        "a test of theirs",
    )
    assert retry_selected() == {"retrying": 1}
    assert read_counts() == {"next_offset": 3, "read": 3, "stored": 1, "quarantined": 2}
    assert find_faults() == []


command = partial(read_output, "quarantine")


def test_quarantine_command_lists_counts_by_reason_and_shows_bytes_of_one_message(
    ingested: Ingested,
) -> None:
    assert "has no unsettled message" in command("list")
    assert "is empty" in command("list", "--all")
    ingested.write(b"\xff bad", b"{", make_value(version=-1))
    groups: list[dict[str, Any]] = json.loads(command("list", "--json"))
    assert [(group["topic"], group["reason"], group["count"]) for group in groups] == [
        (TOPIC, "bad_field", 1),
        (TOPIC, "not_json", 2),
    ]
    first = str(list_quarantined()[0]["id"])
    output = command("show", first)
    assert "offset: 0" in output
    assert r"value (5 bytes): \xff bad" in output
    output = json.loads(command("list", "--ids", "--json", "--reason", "bad_field"))
    assert [row["offset"] for row in output] == [2]
    with pytest.raises(CommandError, match="no message 0 in quarantine"):
        command("show", "0")


def test_quarantine_list_names_the_filter_when_no_message_matches(
    ingested: Ingested,
) -> None:
    ingested.write(b"no json")
    for item in ((), ("--ids",)):
        assert command("list", "--topic", OTHER_TOPIC, "--reason", "not_json", *item) == (
            f"The quarantine has no message of topic {OTHER_TOPIC} and reason not_json.\n"
        )
        for wrong in (("--topic", "typo"), ("--reason", "not_jsn")):
            with pytest.raises(CommandError, match=r"does not exist|there is no |invalid choice"):
                command("list", *wrong, *item)
    assert "not_json" in command("list", "--reason", "not_json")


def test_quarantine_command_retries_and_discards_selected_messages(ingested: Ingested) -> None:
    quarantine_messages_from_the_future(ingested, make_value(id="a"))
    ingested.write(b"bad")
    assert "No message is due" in command("retry")
    assert "1 stored" in command("retry", "--now", "--reason", "in_the_future")
    assert list_ids() == ["a"]
    with pytest.raises(CommandError, match="Select messages"):
        command("discard", "--why", "all")
    assert "1 discarded" in command("discard", "--topic", TOPIC, "--why", "no such loan")
    assert list_statuses() == {"resolved": 1, "discarded": 1}
    assert find_faults() == []
    assert read_counts(SOURCE)["quarantined"] == 1


# Valid, bad, discarded, valid later, resolved by a retry, bad.
BODIES = [
    make_value(id="a"),
    b"bad",
    b"discarded",
    make_value(id="later"),
    make_value(id="tried"),
    b"worse",
]


def quarantine_first_reading(ingested: Ingested) -> dict[int, int]:
    """Ingest BODIES, discard one quarantined message, retry two, and return the ids in quarantine.

    The keys of the result are the offsets of the messages.
    """
    batch = ingested.make_batch(*BODIES[:3])
    ingested.fill(batch, *BODIES[3:], window=EARLIER)
    ingested.store(batch)
    result = {message_row["offset"]: message_row["id"] for message_row in list_quarantined()}
    with open_connection() as plain:
        messages.discard_messages(plain, MessageSelection(**select_message(result[2])), "agreed")
    assert retry_selected(**select_message(result[4])) == {"stored": 1}
    retry_selected(**select_message(result[1]))
    assert read_counts() == {"next_offset": 6, "read": 6, "stored": 2, "quarantined": 4}
    assert find_faults() == []
    return result


def restart_reading(ingested: Ingested) -> None:
    with open_connection("test") as plain:
        assert plain.execute("DELETE FROM ingest_ledger WHERE topic = %s", [SOURCE.topic]).rowcount
    ingested.claim()
    ingested.next[SOURCE] = 0


def get_statuses_by_offset() -> dict[int, tuple[str, str, int]]:
    return {
        row["offset"]: (row["status"], row["reason"], row["attempts"]) for row in list_quarantined()
    }


def test_message_that_is_read_again_keeps_its_quarantine_row(ingested: Ingested) -> None:
    ids_before = quarantine_first_reading(ingested)
    restart_reading(ingested)
    ingested.write(*BODIES)
    assert list_ids() == ["a", "later", "tried"]
    assert read_counts() == {
        "next_offset": 6,
        "read": 6,
        "stored": 1,
        "repeated": 2,
        "quarantined": 3,
    }
    assert get_statuses_by_offset() == {
        1: ("retrying", "not_json", 1),
        2: ("discarded", "not_json", 0),
        3: ("resolved", "in_the_future", 0),
        4: ("resolved", "in_the_future", 1),
        5: ("new", "not_json", 0),
    }
    assert {
        message_row["offset"]: message_row["id"] for message_row in list_quarantined()
    } == ids_before
    assert {
        message_row["outcome"] for message_row in list_quarantined() if message_row["offset"] == 3
    } == {"read again"}
    # The recreated ledger counts fewer stored versions than the table has; all other sums add up.
    assert [fault for fault in find_faults() if "versions, the table has" not in fault] == []


def test_resolved_message_is_open_again_when_it_is_refused_on_rereading_the_topic(
    ingested: Ingested,
) -> None:
    quarantine_first_reading(ingested)
    restart_reading(ingested)
    ingested.write(*BODIES, window=EARLIER)
    result = get_statuses_by_offset()
    assert result[4] == ("new", "in_the_future", 0)
    assert result[2] == ("discarded", "not_json", 0)
    assert read_counts()["quarantined"] == 6
    assert [fault for fault in find_faults() if "versions, the table has" not in fault] == []


def test_retry_changes_no_count_when_recreated_ledger_has_not_counted_the_message_yet(
    ingested: Ingested,
) -> None:
    """The ledger counts the message when the consumer reads the message again."""
    result = quarantine_first_reading(ingested)
    restart_reading(ingested)
    ingested.write(*BODIES[:2])
    assert retry_selected(**select_message(result[3])) == {"stored": 1}
    assert read_counts() == {"next_offset": 2, "read": 2, "repeated": 1, "quarantined": 1}
    ingested.write(*BODIES[2:])
    assert read_counts()["quarantined"] == 3
    assert read_counts()["repeated"] == 3
    assert [fault for fault in find_faults() if "versions, the table has" not in fault] == []
