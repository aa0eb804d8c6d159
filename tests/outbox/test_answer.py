"""Versions are sent again to who misses them: the same bytes, nothing that was not sent before."""

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from django.db import connection, transaction

import outbox
from annals.embedded.broker import Daemon
from outbox import answer
from outbox.answer import Answerer, Request
from outbox.conf import Conf
from tests.kafka import brokers
from tests.outbox import processes, relays, settings, stored
from tests.outbox.relays import TOPIC

KIND = "product-instance"
pytestmark = pytest.mark.kafka


@pytest.fixture
def topic(broker: Daemon) -> str:
    name, _ = brokers.create(broker, [TOPIC, answer.TOPIC])
    return name


def record(id: str, count: int, sent: int) -> None:
    for number in range(count):
        with transaction.atomic():
            outbox.record(KIND, id, {"n": number, "text": "ж\n\u2028"}, author="a")
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE outbox_document SET sent = %s WHERE key = %s", [sent, f"{KIND}/{id}"]
        )


def request(first: object, last: object, id: object = "A1", kind: object = KIND) -> bytes:
    return json.dumps({"kind": kind, "id": id, "from": first, "to": last}).encode()


def ask(broker: Daemon, *values: bytes | None) -> None:
    producer = Producer(broker.client())
    for each in values:
        producer.produce(answer.TOPIC, each, partition=0)
    assert producer.flush(20) == 0


def answering(broker: Daemon) -> AbstractContextManager[Any]:
    """An answerer in a thread of this process, stopped at the end."""
    conf = Conf.read({**settings.OUTBOX, "KAFKA": broker.client()})
    return processes.in_thread(Answerer(conf, "default"))


def versions(broker: Daemon) -> list[tuple[str, int]]:
    return [(each.key, each.version) for each in relays.sent(broker)]


def test_what_was_sent_is_sent_again_byte_for_byte_and_no_more(
    service: str, broker: Daemon, topic: str
) -> None:
    record("A1", 5, sent=4)
    record("B", 2, sent=2)
    wrong = (None, b"", b"{", b"[]", request(2, 1), request("x", 2), request(1, 2, id=""))
    others = (request(1, 2, kind="of-others"), request(1, 2, id="nobody"))
    with answering(broker):
        ask(broker, *wrong, *others, request(2, 2**31 - 1), request(1, 1, "B"))
        relays.until(lambda: len(versions(broker)) == 4)
    found = relays.sent(broker)
    assert {(each.key, each.version) for each in found} == {("A1", n) for n in (2, 3, 4)} | {
        ("B", 1)
    }
    recorded = {each.idempotency_key.decode(): each.value() for each in stored.versions()}
    assert {each.idempotency_key: each.value for each in found}.items() <= recorded.items()
    # What was answered is not answered again.
    with answering(broker):
        ask(broker, request(3, 3))
        relays.until(lambda: len(versions(broker)) == 5)


@pytest.mark.one_broker
def test_more_than_fits_at_once(
    service: str, broker: Daemon, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox.answer.MOST_VERSIONS", 7)
    record("A1", 20, sent=20)
    with answering(broker):
        ask(broker, request(1, 20))
        relays.until(lambda: len(versions(broker)) == 20)
    expected = [("A1", n) for n in range(1, 21)]
    assert versions(broker) == expected


@pytest.mark.one_broker
def test_a_killed_process_is_continued_by_the_next(
    service: str, broker: Daemon, topic: str, database_name: str, tmp_path: Path
) -> None:
    record("A1", 300, sent=300)
    ask(broker, request(1, 300))

    def start(words: str = "") -> Any:
        given = {"KAFKA": {**broker.client(), "linger.ms": 0}}
        return processes.start(
            f"outbox answer {words}", database_name, tmp_path / "log", OUTBOX_TEST_SETTINGS=given
        )

    with processes.kept([start()]) as [first]:
        relays.until(lambda: len(versions(broker)) > 5, 60)
        first.kill()
    with processes.kept([start("--until-idle 15")]):
        relays.until(lambda: len({*versions(broker)}) == 300, 90)


def test_a_process_that_ends_when_idle_answers_before(service: str, apache: Daemon) -> None:
    """Kafka gives a new group its partitions after three seconds."""
    brokers.create(apache, [TOPIC, answer.TOPIC])
    record("A1", 3, sent=3)
    ask(apache, request(1, 3))
    conf = Conf.read({**settings.OUTBOX, "KAFKA": apache.client()})
    Answerer(conf, "default", until_idle=5).run()
    assert len(versions(apache)) == 3


def test_it_waits_for_brokers_that_are_away(service: str, embedded: Daemon) -> None:
    record("A1", 3, sent=3)
    embedded.kill()
    with answering(embedded):
        embedded.start()  # without topics
        brokers.create(embedded, [TOPIC, answer.TOPIC])
        ask(embedded, request(1, 3))
        relays.until(lambda: len(versions(embedded)) == 3, 90)


@pytest.mark.parametrize(
    "value, expected",
    [
        (request(1, 1), Request(KIND, "A1", 1, 1)),
        (request(0, 2**31 - 1), Request(KIND, "A1", 0, 2**31 - 1)),
        (request(0, 2**31), None),
        (request(-1, 1), None),
        (b'{"kind": "a", "id": "1", "from": Infinity, "to": 1}', None),
        (request(1, 1, id="a\0"), None),
        (request(1, 1, id="a\ud800"), None),
        (b"[" * 100_000, None),
        (b"\xff", None),
    ],
)
def test_what_a_request_is(value: bytes, expected: Request | None) -> None:
    assert answer.read(value) == expected
