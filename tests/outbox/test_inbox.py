"""The inbox processes messages once, and in order by key. A bad message stops only its key."""

import logging
import signal
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction
from django.db.models import F

from outbox import inbox
from outbox.database.sessions import SESSION_SETTINGS, apply_session_settings, connect
from outbox.inbox import message as message_module
from outbox.inbox import queue
from outbox.inbox.message import format_name, list_handlers
from outbox.inbox.models import Done, Waiting
from outbox.inbox.queue import decode_headers
from outbox.inbox.worker import DatabaseAwayError, MessageProcessor
from tests.outbox import relays
from tests.outbox.consumers import (
    list_effects,
    make_message,
    make_processor,
    map_states,
    process_due,
    store_messages,
)
from tests.outbox.shop.inbox import EVENTS, SKIPPED, TWIN, handle_event
from tests.outbox.test_write import run_in_threads


def test_effect_of_handler_and_identity_of_message_are_committed_together(service: str) -> None:
    store_messages(make_message(1), make_message(2, "B"), make_message(3))
    process_due()
    assert list_effects() == [("A", 1), ("B", 2), ("A", 3)]
    assert not Waiting.objects.exists()
    assert Done.objects.count() == 3


def test_repeated_message_is_skipped(service: str) -> None:
    """A message is identified by its header, or by its offset if it has no header. A repeated
    message is skipped whether the first is still waiting or was processed."""
    batch = [
        make_message(1),
        make_message(2, id="x/A/1"),
        make_message(3, id="x/A/1"),
        make_message(4),
    ]
    assert store_messages(*batch) == {("shop", "stored"): 3, ("shop", "repeated"): 1}
    assert store_messages(*batch) == {("shop", "repeated"): 4}
    process_due()
    assert store_messages(*batch, make_message(9, id="x/A/1")) == {("shop", "repeated"): 5}
    process_due()
    assert list_effects() == [("A", 1), ("A", 2), ("A", 4)]


def test_message_on_two_topics_is_processed_once_when_handler_defines_identity(
    service: str,
) -> None:
    store_messages(
        make_message(1, topic=SKIPPED, n=7),
        make_message(5, topic=TWIN, n=7),
        make_message(6, topic=TWIN, n=8),
    )
    store_messages(inbox.Message(TWIN, 0, 9, b"A", b"no JSON"))
    process_due()
    assert sorted(list_effects("own key")) == [("A", 7), ("A", 8)]
    assert list_effects("skipping") == [("A", 7)]
    assert map_states() == {9: "dead"}


def test_failing_message_delays_only_messages_with_the_same_key(service: str) -> None:
    store_messages(make_message(1, do="raise", times=2), make_message(2), make_message(3, "B"))
    store_messages(make_message(4), make_message(5, "B"), make_message(6, None))
    processor = process_due(RETRY_FIRST_SECONDS=60, RETRY_MOST_SECONDS=60)
    assert list_effects() == [("B", 3), ("B", 5), ("", 6)]
    assert map_states() == {1: "failed", 2: "new", 4: "new"}
    first = Waiting.objects.get(offset=1)
    assert (first.attempts, first.last_error) == (1, "HandlerError: as asked")
    assert processor.counts["shop", "failure HandlerError"] == 1
    relays.wait_until(lambda: process_failed_now() and not Waiting.objects.exists())
    assert list_effects()[3:] == [("A", 1), ("A", 2), ("A", 4)]


def test_dead_letter_keeps_the_message_byte_for_byte(service: str) -> None:
    raw = b'{"n": 1, "do": "raise", "text": "\\u0000\xd0\xb6"}  '
    sent = inbox.Message("shop.events", 0, 1, b"\xff\x01", raw, (("a", b"\xfe"), ("b", None)))
    store_messages(sent, inbox.Message("shop.events", 0, 2, b"\xff\x01", b'{"n": 2}'))
    process_until_nothing_is_due(ATTEMPTS=2)
    dead = Waiting.objects.get(offset=1)
    assert (dead.state, dead.attempts, dead.last_error) == ("dead", 2, "HandlerError: ?ж")
    assert (bytes(dead.key or b""), bytes(dead.value or b"")) == (sent.key, raw)
    assert decode_headers(dead.headers) == sent.headers
    assert map_states() == {1: "dead", 2: "new"}
    assert list_effects() == []


@pytest.mark.parametrize("value", [b"no JSON", b"[1]", b"\xff", b"[" * 100_000, None])
def test_message_that_can_never_be_processed_becomes_dead_letter_at_the_first_attempt(
    service: str, value: bytes | None
) -> None:
    store_messages(inbox.Message("shop.events", 0, 1, b"A", value), make_message(2, "B"))
    process_due()
    assert map_states() == {1: "dead"}
    assert Waiting.objects.get().attempts == 1
    assert list_effects() == [("B", 2)]


@pytest.mark.parametrize(
    "value",
    [
        b'{"n": NaN}',
        b"[Infinity]",
        b"-Infinity",
        b"\xef\xbb\xbf{}",
        '{"n": 1}'.encode("utf-16"),
        '{"n": 1}'.encode("utf-16-le"),
        '{"n": 1}'.encode("utf-32-be"),
        b'"\xff"',
        b"",
        b" ",
        b"01",
        b"1.",
        b"+1",
        b"{'n': 1}",
        b'{"n": 1}{}',
        b'"\t"',
        b"1e9999999999999999999",
    ],
)
def test_message_json_rejects_value_that_is_not_json_in_utf_8(value: bytes) -> None:
    with pytest.raises(inbox.Reject, match=r"not JSON|cannot be parsed as JSON"):
        inbox.Message(EVENTS, 0, 1, None, value).json()


@pytest.mark.parametrize(
    "value, expected",
    [
        (b"1.10", Decimal("1.10")),
        (b"12345678901234567890.0123456789", Decimal("12345678901234567890.0123456789")),
        (b"1e400", Decimal("1e400")),
        (b"12345678901234567890123", 12345678901234567890123),
        (b"9" * 5_000, Decimal("9" * 5_000)),
        (b"-" + b"9" * 5_000, Decimal("-" + "9" * 5_000)),
        ('{"n": [true, null, "ж"]}'.encode(), {"n": [True, None, "ж"]}),
    ],
)
def test_message_json_keeps_every_digit_of_numbers(value: bytes, expected: object) -> None:
    parsed = inbox.Message(EVENTS, 0, 1, None, value).json()
    assert parsed == expected
    assert not isinstance(parsed, float)
    assert str(parsed)


@pytest.mark.parametrize("blank", [b"", b" ", b"\n\t"])
def test_messages_with_a_blank_idempotency_key_are_processed_separately(
    service: str, blank: bytes
) -> None:
    headers = (("idempotency-key", blank),)
    batch = [replace(make_message(n), headers=headers) for n in (1, 2, 3)]
    assert store_messages(*batch) == {("shop", "stored"): 3}
    assert store_messages(*batch) == {("shop", "repeated"): 3}
    process_due()
    assert list_effects() == [("A", 1), ("A", 2), ("A", 3)]


@pytest.mark.parametrize("key", ["", " ", None])
def test_messages_are_processed_separately_when_handler_gives_a_blank_key(
    service: str, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    changes: Any = {"key": lambda _: key}
    handler = replace(list_handlers()["own key"], **changes)
    monkeypatch.setitem(message_module._handlers, "own key", handler)
    store_messages(*(make_message(n, topic=TWIN) for n in (1, 2, 3)))
    process_due()
    assert list_effects("own key") == [("A", 1), ("A", 2), ("A", 3)]


@pytest.mark.parametrize("do", ["raise", "reject"])
def test_characters_that_postgresql_refuses_are_replaced_in_stored_errors(
    service: str, do: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of a handler can quote the message. Storing the error must not end the consumer."""
    # pytest-xdist cannot send a captured log with half a character, and ends all tests.
    monkeypatch.setattr(logging.getLogger("outbox.inbox.worker"), "propagate", False)
    store_messages(make_message(1, do=do, text="a\0b \ud800"), make_message(2, "B"))
    process_until_nothing_is_due(ATTEMPTS=1)
    waiting = Waiting.objects.get()
    assert (waiting.state, waiting.last_error.partition(": ")[2]) == ("dead", "a?b ?")
    assert list_effects() == [("B", 2)]


def test_later_messages_of_a_key_are_processed_after_a_dead_letter_when_stop_key_is_false(
    service: str,
) -> None:
    store_messages(make_message(1, topic=SKIPPED, do="raise"), make_message(2, topic=SKIPPED))
    store_messages(make_message(3, topic=SKIPPED))
    process_until_nothing_is_due()
    assert list_effects("skipping") == [("A", 2), ("A", 3)]


@pytest.mark.parametrize("do", ["exit", "hang", "query"])
def test_attempt_fails_when_handler_exits_or_takes_too_long(service: str, do: str) -> None:
    store_messages(make_message(1, do=do, times=1), make_message(2), make_message(3, "B"))
    processor = make_processor(SECONDS=0.3)
    began = time.monotonic()
    relays.wait_until(lambda: process_until_outage(processor) and not Waiting.objects.exists())
    assert time.monotonic() - began < 30
    assert [n for key, n in list_effects() if key == "A"] == [1, 2]
    reason = "SystemExit" if do == "exit" else "TimeLimit"
    assert processor.counts["shop", f"failure {reason}"] == 1


def test_interrupt_of_a_handler_at_any_moment_does_not_prevent_commit_of_next_message(
    service: str,
) -> None:
    """The time limit can also interrupt Django's code at the end of a transaction."""
    processor = make_processor(ATTEMPTS=10_000)
    moments = iter(range(1, 10_000))

    def interrupt_soon(message: inbox.Message) -> None:
        handle_event(message)
        signal.setitimer(signal.ITIMER_REAL, next(moments) * 0.000_02)

    shop = list_handlers()["shop"]
    with psycopg.connect(service, autocommit=True) as other_session:
        for n in range(250):
            processor.handlers = {"shop": replace(shop, function=interrupt_soon)}
            store_messages(make_message(2 * n, None))
            process_until_outage(processor)
            processor.handlers = {"shop": shop}
            store_messages(make_message(2 * n + 1, None))
            newest = other_session.execute('SELECT max("offset") FROM inbox_message').fetchone()
            assert newest == (2 * n + 1,)
            relays.wait_until(
                lambda: process_until_outage(processor) and not Waiting.objects.exists()
            )
    assert sorted(list_effects()) == [("", n) for n in range(500)]
    assert processor.counts["shop", "failure TimeLimit"]


def test_lost_connection_counts_as_failure_of_message_only_after_all_attempts(service: str) -> None:
    """A message whose handler cuts the connection in every attempt becomes a dead letter."""
    store_messages(make_message(1, do="cut", times=1), make_message(2))
    processor = make_processor(ATTEMPTS=2)
    with pytest.raises(DatabaseAwayError):
        processor.process_next()
    connection.close()
    assert Waiting.objects.get(offset=1).attempts == 1
    assert processor.counts["shop", "failure OperationalError"] == 0
    Waiting.objects.filter(offset=1).update(value=make_message(1).value)
    while processor.process_next():
        pass
    assert list_effects() == [("A", 1), ("A", 2)]
    store_messages(make_message(3, do="cut"))
    relays.wait_until(lambda: process_until_outage(processor) and map_states() == {3: "dead"})


def test_attempt_is_counted_when_its_process_ends_during_the_attempt(service: str) -> None:
    """If it was the last attempt, the message becomes a dead letter."""
    store_messages(make_message(1), make_message(2, "B"))
    processor = make_processor(ATTEMPTS=2)
    locked = queue.lock_next_message(["shop"], "default")
    assert locked is not None
    assert locked.place[2] == 1
    assert queue.begin_attempt(locked, 0.0, "default") is not None
    connection.close()
    locked_again = queue.lock_next_message(["shop"], "default")
    assert locked_again is not None
    first_message_again = locked_again if locked_again.place[2] == 1 else None
    connection.close()
    Waiting.objects.filter(offset=1).update(attempts=2)
    relays.wait_until(lambda: process_until_outage(processor) and map_states() == {1: "dead"})
    assert first_message_again is None or first_message_again.crashed
    assert Waiting.objects.get().last_error == "the process ended during the attempt"
    assert list_effects() == [("B", 2)]


def test_later_message_of_a_key_waits_while_another_message_of_the_key_is_processed(
    service: str,
) -> None:
    store_messages(make_message(1, do="sleep", seconds=1), make_message(2), make_message(3, "B"))
    store_messages(make_message(4))
    thread = threading.Thread(target=process_in_thread)
    thread.start()
    relays.wait_until(lambda: 1 in map_states() and map_states()[1] == "processing")
    began = time.monotonic()
    process_due()
    assert list_effects() == [("B", 3)]
    assert time.monotonic() - began < 0.9
    thread.join()
    process_due()
    assert [n for key, n in list_effects() if key == "A"] == [1, 2, 4]


def test_frozen_consumer_does_not_stop_other_consumers(service: str) -> None:
    """PostgreSQL ends the transaction of the frozen consumer. The test runs this consumer in a
    thread, because Python's time limit for a handler works only in the main thread."""
    store_messages(make_message(1, do="sleep", seconds=1, times=1), make_message(2))
    errors: list[BaseException] = []

    def process_frozen() -> None:
        try:
            make_processor(SECONDS=0.2).process_next()
        except DatabaseAwayError as error:
            errors.append(error)
        connection.close()

    thread = threading.Thread(target=process_frozen)
    thread.start()
    relays.wait_until(lambda: 1 in map_states() and map_states()[1] == "processing")
    relays.wait_until(lambda: process_until_outage(make_processor(SECONDS=5)) and not map_states())
    thread.join()
    assert ["idle-in-transaction" in str(error) for error in errors] == [True]
    assert list_effects() == [("A", 1), ("A", 2)]


def test_many_consumers_share_messages_and_keep_the_order(service: str) -> None:
    for batch in range(4):
        store_messages(*(make_message(batch * 50 + n, f"K{n % 7}") for n in range(50)))
    run_in_threads([process_in_thread] * 4)
    by_key: dict[str, list[int]] = {}
    for key, n in list_effects():
        by_key.setdefault(key, []).append(n)
    assert sum(map(len, by_key.values())) == 200
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_messages_behind_a_dead_letter_are_processed_when_it_is_discarded(
    service: str,
) -> None:
    """Until the discard, the index of due messages does not have these messages."""
    store_messages(inbox.Message("shop.events", 0, 0, b"A", b"no JSON"))
    process_due()
    for n in range(1, 30):
        store_messages(make_message(n))
    due = Waiting.objects.filter(due_at__isnull=False)
    assert due.count() == 29
    queue.repair_due_times(1.0, "default")
    assert due.count() == 0
    assert not process_due().counts
    assert queue.discard_messages([Waiting.objects.get(state="dead").id], "default")
    process_due()
    assert list_effects() == [("A", n) for n in range(1, 30)]


def test_retry_of_a_message_is_not_delayed_when_the_clock_goes_back(service: str) -> None:
    store_messages(make_message(1, do="raise", times=1))
    process_due()
    Waiting.objects.update(due_at=F("due_at") + timedelta(days=1))
    queue.repair_due_times(0.01, "default")
    relays.wait_until(
        lambda: process_until_outage(make_processor()) and not Waiting.objects.exists()
    )


def test_old_identities_of_processed_messages_are_deleted_by_whole_days(service: str) -> None:
    store_messages(make_message(1), make_message(2))
    process_due()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE inbox_done SET slot = mod(slot + 32 - 9, 32),"
            " done_at = done_at - interval '9 days' WHERE identity LIKE '%%/1' RETURNING slot"
        )
        [slot] = cursor.fetchone()
    assert queue.truncate_expired_identities(9, "default") == []
    with psycopg.connect(service) as reader:
        reader.execute("SELECT FROM inbox_done")
        assert queue.truncate_expired_identities(7, "default") == []
        reader.rollback()
    assert queue.truncate_expired_identities(7, "default") == [f"inbox_done_{slot:02}"]
    assert store_messages(make_message(1), make_message(2)) == {
        ("shop", "stored"): 1,
        ("shop", "repeated"): 1,
    }


def test_identities_are_not_deleted_when_the_clock_goes_back(service: str) -> None:
    """The tables are used in turn: the table of a coming day is also the table of an old day."""
    store_messages(make_message(1))
    process_due()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE inbox_done SET slot = mod(slot + 5, 32), done_at = done_at + interval '5 days'"
        )
    assert queue.truncate_expired_identities(7, "default") == []
    assert store_messages(make_message(1)) == {("shop", "repeated"): 1}


def test_printable_names_of_different_message_keys_differ(service: str) -> None:
    keys = [b"\0", b"hex:00", b"\xff", b"hex:ff", b"hex:6865783a3030", b"x" * 201]
    keys += [format_name(key).encode() for key in keys]
    names = {format_name(key) for key in keys}
    assert len(names) == len(set(keys))


def test_search_for_blocked_messages_takes_no_locks_when_no_message_is_blocked(
    service: str,
) -> None:
    """PostgreSQL has memory for some thousands of locks, and there can be more messages."""
    store_messages(*(make_message(n, str(n)) for n in range(50)))
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(queue._BLOCKED)
        cursor.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
        )
        assert cursor.fetchone() == (0,)


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        ({"args": ()}, "needs the names of topics"),
        ({"args": (print,)}, "needs the names of topics"),
        ({"args": ("a",), "name": "shop"}, "two handlers have the name 'shop'"),
    ],
)
def test_handler_is_refused_when_it_has_no_topic_or_its_name_is_in_use(
    arguments: dict[str, Any], sentence: str
) -> None:
    topics = arguments.pop("args")
    with pytest.raises(ValueError, match=sentence):
        inbox.handler(*topics, **arguments)(print)


def process_until_nothing_is_due(**changes: Any) -> None:
    """Process messages until only dead letters, and messages that wait for them, are left."""
    processor = make_processor(**changes)
    relays.wait_until(
        lambda: (
            process_until_outage(processor)
            and not Waiting.objects.filter(due_at__isnull=False).exists()
        )
    )


def process_until_outage(processor: MessageProcessor) -> bool:
    """Process due messages until none is left or the connection to the database is lost.

    Then correct the due times of messages with queue.repair_due_times(). Always return True, so
    that an `and` expression can call this function before a condition.
    """
    try:
        while processor.process_next():
            pass
    except DatabaseAwayError:
        queue.drop_connection("default")
    queue.repair_due_times(60, "default")
    return True


def process_failed_now() -> bool:
    """Process failed messages now, without waiting until their retries are due.

    Always return True, so that an `and` expression can call this function before a condition.
    """
    Waiting.objects.filter(state="failed").update(due_at=datetime(1970, 1, 1, tzinfo=UTC))
    process_due()
    return True


def process_in_thread() -> None:
    process_due()
    connection.close()


def test_inbox_sessions_do_not_depend_on_settings_of_the_database(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong_defaults = {
        "standard_conforming_strings": "off",
        "default_transaction_isolation": "serializable",
    }
    with psycopg.connect(service, autocommit=True) as server:
        name = server.info.dbname
        for setting, value in wrong_defaults.items():
            server.execute(f"ALTER DATABASE {name} SET {setting} = '{value}'".encode())
        monkeypatch.setattr("django.db.backends.signals.connection_created.receivers", [])
        try:
            apply_session_settings("default")
            connection.close()
            with connection.cursor() as cursor:
                for setting in SESSION_SETTINGS:
                    cursor.execute(f"SHOW {setting}")
                    assert cursor.fetchone() == (SESSION_SETTINGS[setting],)
            with connect("default") as relay:
                for setting in SESSION_SETTINGS:
                    assert relay.execute(f"SHOW {setting}".encode()).fetchone() == (
                        SESSION_SETTINGS[setting],
                    )
            store_messages(replace(make_message(1), value=b'{"n": 1, "text": "a\\\\b"}'))
            process_due()
            assert list_effects() == [("A", 1)]
        finally:
            for setting in wrong_defaults:
                server.execute(f"ALTER DATABASE {name} RESET {setting}".encode())
            connection.close()
