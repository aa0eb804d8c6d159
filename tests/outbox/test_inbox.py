"""Each message has its effect once, in order of its key; a bad one stops its key only."""

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
from outbox.database import SESSION, connect, settle
from outbox.inbox import message as message_module
from outbox.inbox import queue
from outbox.inbox.message import handlers, name_of
from outbox.inbox.models import Done, Waiting
from outbox.inbox.queue import headers_from
from outbox.inbox.worker import Away, Worker
from tests.outbox import relays
from tests.outbox.consumers import effects, message, put, states, work, worker
from tests.outbox.shop.inbox import EVENTS, SKIPPED, TWIN, event
from tests.outbox.test_write import in_threads


def test_effect_and_key_are_committed_together(service: str) -> None:
    put(message(1), message(2, "B"), message(3))
    work()
    assert effects() == [("A", 1), ("B", 2), ("A", 3)]
    assert not Waiting.objects.exists()
    assert Done.objects.count() == 3


def test_what_comes_again_is_skipped(service: str) -> None:
    """By the header, or by the place of a message without one; waiting or processed."""
    batch = [message(1), message(2, id="x/A/1"), message(3, id="x/A/1"), message(4)]
    assert put(*batch) == {("shop", "stored"): 3, ("shop", "repeated"): 1}
    assert put(*batch) == {("shop", "repeated"): 4}
    work()
    assert put(*batch, message(9, id="x/A/1")) == {("shop", "repeated"): 5}
    work()
    assert effects() == [("A", 1), ("A", 2), ("A", 4)]


def test_a_key_of_the_service_s_own(service: str) -> None:
    """One message in two topics, for a handler that names both."""
    put(message(1, topic=SKIPPED, n=7), message(5, topic=TWIN, n=7), message(6, topic=TWIN, n=8))
    put(inbox.Message(TWIN, 0, 9, b"A", b"no JSON"))
    work()
    assert sorted(effects("own key")) == [("A", 7), ("A", 8)]
    assert effects("skipping") == [("A", 7)]
    assert states() == {9: "dead"}


def test_a_failing_message_stops_its_key_only(service: str) -> None:
    put(message(1, do="raise", times=2), message(2), message(3, "B"))
    put(message(4), message(5, "B"), message(6, None))
    made = work(RETRY_FIRST_SECONDS=60, RETRY_MOST_SECONDS=60)
    assert effects() == [("B", 3), ("B", 5), ("", 6)]
    assert states() == {1: "failed", 2: "new", 4: "new"}
    first = Waiting.objects.get(offset=1)
    assert (first.attempts, first.last_error) == (1, "Failure: as asked")
    assert made.counts["shop", "failure Failure"] == 1
    relays.until(lambda: hurry() and not Waiting.objects.exists())
    assert effects()[3:] == [("A", 1), ("A", 2), ("A", 4)]


def test_after_all_attempts_it_is_a_dead_letter_byte_for_byte(service: str) -> None:
    raw = b'{"n": 1, "do": "raise", "text": "\\u0000\xd0\xb6"}  '
    given = inbox.Message("shop.events", 0, 1, b"\xff\x01", raw, (("a", b"\xfe"), ("b", None)))
    put(given, inbox.Message("shop.events", 0, 2, b"\xff\x01", b'{"n": 2}'))
    until_rest(ATTEMPTS=2)
    dead = Waiting.objects.get(offset=1)
    assert (dead.state, dead.attempts, dead.last_error) == ("dead", 2, "Failure: ?ж")
    assert (bytes(dead.key or b""), bytes(dead.value or b"")) == (given.key, raw)
    assert headers_from(dead.headers) == given.headers
    assert states() == {1: "dead", 2: "new"}
    assert effects() == []


@pytest.mark.parametrize("value", [b"no JSON", b"[1]", b"\xff", b"[" * 100_000, None])
def test_what_no_attempt_can_process_is_dead_at_once(service: str, value: bytes | None) -> None:
    put(inbox.Message("shop.events", 0, 1, b"A", value), message(2, "B"))
    work()
    assert states() == {1: "dead"}
    assert Waiting.objects.get().attempts == 1
    assert effects() == [("B", 2)]


@pytest.mark.parametrize(
    "value",
    [
        b'{"n": NaN}', b'[Infinity]', b"-Infinity", b"\xef\xbb\xbf{}", '{"n": 1}'.encode("utf-16"),
        '{"n": 1}'.encode("utf-16-le"), '{"n": 1}'.encode("utf-32-be"), b'"\xff"', b"", b" ",
        b"01", b"1.", b"+1", b"{'n': 1}", b'{"n": 1}{}', b'"\t"', b"1e9999999999999999999",
    ],
)  # fmt: skip
def test_json_of_a_message_is_refused_unless_it_is_json_in_utf_8(value: bytes) -> None:
    with pytest.raises(inbox.Reject, match="no JSON"):
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
def test_json_of_a_message_has_exact_numbers(value: bytes, expected: object) -> None:
    found = inbox.Message(EVENTS, 0, 1, None, value).json()
    assert found == expected
    assert not isinstance(found, float)
    assert str(found)


@pytest.mark.parametrize("blank", [b"", b" ", b"\n\t"])
def test_messages_with_a_blank_idempotency_key_are_not_the_same(service: str, blank: bytes) -> None:
    headers = (("idempotency-key", blank),)
    batch = [replace(message(n), headers=headers) for n in (1, 2, 3)]
    assert put(*batch) == {("shop", "stored"): 3}
    assert put(*batch) == {("shop", "repeated"): 3}
    work()
    assert effects() == [("A", 1), ("A", 2), ("A", 3)]


@pytest.mark.parametrize("key", ["", " ", None])
def test_messages_with_a_blank_key_of_the_service_s_own_are_not_the_same(
    service: str, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    changes: Any = {"key": lambda _: key}
    own = replace(handlers()["own key"], **changes)
    monkeypatch.setitem(message_module._handlers, "own key", own)
    put(*(message(n, topic=TWIN) for n in (1, 2, 3)))
    work()
    assert effects("own key") == [("A", 1), ("A", 2), ("A", 3)]


@pytest.mark.parametrize("do", ["raise", "reject"])
def test_an_error_with_texts_that_no_database_takes(
    service: str, do: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler quotes what a message says; the consumer must not end for it."""
    # pytest-xdist cannot send a captured log with half a character, and ends all tests.
    monkeypatch.setattr(logging.getLogger("outbox.inbox.worker"), "propagate", False)
    put(message(1, do=do, text="a\0b \ud800"), message(2, "B"))
    until_rest(ATTEMPTS=1)
    waiting = Waiting.objects.get()
    assert (waiting.state, waiting.last_error.partition(": ")[2]) == ("dead", "a?b ?")
    assert effects() == [("B", 2)]


def test_later_messages_go_on_if_the_handler_says_so(service: str) -> None:
    put(message(1, topic=SKIPPED, do="raise"), message(2, topic=SKIPPED))
    put(message(3, topic=SKIPPED))
    until_rest()
    assert effects("skipping") == [("A", 2), ("A", 3)]


@pytest.mark.parametrize("do", ["exit", "hang", "query"])
def test_a_handler_that_ends_python_or_hangs_has_failed(service: str, do: str) -> None:
    put(message(1, do=do, times=1), message(2), message(3, "B"))
    made = worker(SECONDS=0.3)
    began = time.monotonic()
    relays.until(lambda: serve(made) and not Waiting.objects.exists())
    assert time.monotonic() - began < 30
    assert [n for key, n in effects() if key == "A"] == [1, 2]
    reason = "SystemExit" if do == "exit" else "TimeLimit"
    assert made.counts["shop", f"failure {reason}"] == 1


def test_whatever_the_limit_interrupts_the_next_message_is_committed(service: str) -> None:
    """It can fall into what Django does at the end of the transaction."""
    made = worker(ATTEMPTS=10_000)
    moments = iter(range(1, 10_000))

    def late(message: inbox.Message) -> None:
        event(message)
        signal.setitimer(signal.ITIMER_REAL, next(moments) * 0.000_02)

    shop = handlers()["shop"]
    with psycopg.connect(service, autocommit=True) as other:
        for n in range(250):
            made.handlers = {"shop": replace(shop, function=late)}
            put(message(2 * n, None))
            serve(made)
            made.handlers = {"shop": shop}
            put(message(2 * n + 1, None))
            found = other.execute('SELECT max("offset") FROM inbox_message').fetchone()
            assert found == (2 * n + 1,)
            relays.until(lambda: serve(made) and not Waiting.objects.exists())
    assert sorted(effects()) == [("", n) for n in range(500)]
    assert made.counts["shop", "failure TimeLimit"]


def test_a_connection_that_is_cut_is_not_the_message_s_fault(service: str) -> None:
    """But a message that cuts it each time does not go on for ever."""
    put(message(1, do="cut", times=1), message(2))
    made = worker(ATTEMPTS=2)
    with pytest.raises(Away):
        made.one()
    connection.close()
    assert Waiting.objects.get(offset=1).attempts == 1
    assert made.counts["shop", "failure OperationalError"] == 0
    Waiting.objects.filter(offset=1).update(value=message(1).value)
    while made.one():
        pass
    assert effects() == [("A", 1), ("A", 2)]
    put(message(3, do="cut"))
    relays.until(lambda: serve(made) and states() == {3: "dead"})


def test_an_attempt_that_ended_without_a_result_counts(service: str) -> None:
    """As after the end of a process: the last one makes the message a dead letter."""
    put(message(1), message(2, "B"))
    made = worker(ATTEMPTS=2)
    turn = queue.take(["shop"], "default")
    assert turn is not None
    assert turn.place[2] == 1
    assert queue.begin(turn, 0.0, "default") is not None
    connection.close()
    again = queue.take(["shop"], "default")
    assert again is not None
    second = again if again.place[2] == 1 else None
    connection.close()
    Waiting.objects.filter(offset=1).update(attempts=2)
    relays.until(lambda: serve(made) and states() == {1: "dead"})
    assert second is None or second.crashed
    assert Waiting.objects.get().last_error == "the process ended during the attempt"
    assert effects() == [("B", 2)]


def test_a_message_is_nobody_else_s_while_it_is_processed(service: str) -> None:
    """Nor is a later one of its key."""
    put(message(1, do="sleep", seconds=1), message(2), message(3, "B"))
    put(message(4))
    other = threading.Thread(target=in_a_thread)
    other.start()
    relays.until(lambda: 1 in states() and states()[1] == "processing")
    began = time.monotonic()
    work()
    assert effects() == [("B", 3)]
    assert time.monotonic() - began < 0.9
    other.join()
    work()
    assert [n for key, n in effects() if key == "A"] == [1, 2, 4]


def test_a_consumer_that_is_frozen_holds_nobody_up(service: str) -> None:
    """PostgreSQL ends its transaction; it finds that out when it wakes. Not in the main thread
    Python's own limit is not there, as in a process that is frozen."""
    put(message(1, do="sleep", seconds=1, times=1), message(2))
    errors: list[BaseException] = []

    def frozen() -> None:
        try:
            worker(SECONDS=0.2).one()
        except Away as error:
            errors.append(error)
        connection.close()

    other = threading.Thread(target=frozen)
    other.start()
    relays.until(lambda: 1 in states() and states()[1] == "processing")
    relays.until(lambda: serve(worker(SECONDS=5)) and not states())
    other.join()
    assert ["idle-in-transaction" in str(error) for error in errors] == [True]
    assert effects() == [("A", 1), ("A", 2)]


def test_many_workers_share_and_keep_the_order(service: str) -> None:
    for batch in range(4):
        put(*(message(batch * 50 + n, f"K{n % 7}") for n in range(50)))
    in_threads([in_a_thread] * 4)
    by_key: dict[str, list[int]] = {}
    for key, n in effects():
        by_key.setdefault(key, []).append(n)
    assert sum(map(len, by_key.values())) == 200
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_messages_behind_a_dead_letter_cost_nothing(service: str) -> None:
    """They leave the index of what is due, and come back."""
    put(inbox.Message("shop.events", 0, 0, b"A", b"no JSON"))
    work()
    for n in range(1, 30):
        put(message(n))
    due = Waiting.objects.filter(due_at__isnull=False)
    assert due.count() == 29
    queue.tidy(1.0, "default")
    assert due.count() == 0
    assert not work().counts
    assert queue.discard([Waiting.objects.get(state="dead").id], "default")
    work()
    assert effects() == [("A", n) for n in range(1, 30)]


def test_a_clock_that_goes_back_delays_no_retry(service: str) -> None:
    put(message(1, do="raise", times=1))
    work()
    Waiting.objects.update(due_at=F("due_at") + timedelta(days=1))
    queue.tidy(0.01, "default")
    relays.until(lambda: serve(worker()) and not Waiting.objects.exists())


def test_old_keys_leave_by_whole_days(service: str) -> None:
    put(message(1), message(2))
    work()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE inbox_done SET slot = mod(slot + 32 - 9, 32),"
            " done_at = done_at - interval '9 days' WHERE identity LIKE '%%/1' RETURNING slot"
        )
        [slot] = cursor.fetchone()
    assert queue.clean(9, "default") == []
    with psycopg.connect(service) as reader:
        reader.execute("SELECT FROM inbox_done")
        assert queue.clean(7, "default") == []
        reader.rollback()
    assert queue.clean(7, "default") == [f"inbox_done_{slot:02}"]
    assert put(message(1), message(2)) == {("shop", "stored"): 1, ("shop", "repeated"): 1}


def test_a_clock_that_goes_back_forgets_no_keys(service: str) -> None:
    """The tables of the days to come are those of old days, too."""
    put(message(1))
    work()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE inbox_done SET slot = mod(slot + 5, 32), done_at = done_at + interval '5 days'"
        )
    assert queue.clean(7, "default") == []
    assert put(message(1)) == {("shop", "repeated"): 1}


def test_other_bytes_are_another_key(service: str) -> None:
    given = [b"\0", b"hex:00", b"\xff", b"hex:ff", b"hex:6865783a3030", b"x" * 201]
    given += [name_of(each).encode() for each in given]
    names = {name_of(each) for each in given}
    assert len(names) == len(set(given))


def test_tidying_takes_no_locks_of_messages_that_do_not_wait(service: str) -> None:
    """There is place for some thousands of locks, and there can be more messages."""
    put(*(message(n, str(n)) for n in range(50)))
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
def test_a_wrong_handler_is_refused(arguments: dict[str, Any], sentence: str) -> None:
    topics = arguments.pop("args")
    with pytest.raises(ValueError, match=sentence):
        inbox.handler(*topics, **arguments)(print)


def until_rest(**changes: Any) -> None:
    """Process until all that is left is dead or waits for a dead letter."""
    made = worker(**changes)
    relays.until(lambda: serve(made) and not Waiting.objects.filter(due_at__isnull=False).exists())


def serve(made: Worker) -> bool:
    """What a consumer does over outages. Always true."""
    try:
        while made.one():
            pass
    except Away:
        queue.drop("default")
    queue.tidy(60, "default")
    return True


def hurry() -> bool:
    """Always true."""
    Waiting.objects.filter(state="failed").update(due_at=datetime(1970, 1, 1, tzinfo=UTC))
    work()
    return True


def in_a_thread() -> None:
    work()
    connection.close()


def test_its_sessions_set_what_its_promises_rest_on(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the defaults of the database are."""
    wrong = {"standard_conforming_strings": "off", "default_transaction_isolation": "serializable"}
    with psycopg.connect(service, autocommit=True) as plain:
        name = plain.info.dbname
        for setting, value in wrong.items():
            plain.execute(f"ALTER DATABASE {name} SET {setting} = '{value}'".encode())
        monkeypatch.setattr("django.db.backends.signals.connection_created.receivers", [])
        try:
            settle("default")
            connection.close()
            with connection.cursor() as cursor:
                for setting in SESSION:
                    cursor.execute(f"SHOW {setting}")
                    assert cursor.fetchone() == (SESSION[setting],)
            with connect("default") as relay:
                for setting in SESSION:
                    assert relay.execute(f"SHOW {setting}".encode()).fetchone() == (
                        SESSION[setting],
                    )
            put(replace(message(1), value=b'{"n": 1, "text": "a\\\\b"}'))
            work()
            assert effects() == [("A", 1)]
        finally:
            for setting in wrong:
                plain.execute(f"ALTER DATABASE {name} RESET {setting}".encode())
            connection.close()
