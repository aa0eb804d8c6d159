"""The command `outbox answer` resends requested versions that a relay has already sent."""

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from django.db import connection, transaction

import outbox
from annals.embedded.broker import KafkaServer
from outbox.conf import OutboxConf
from outbox.relay import answer
from outbox.relay.answer import RequestAnswerer, VersionRequest
from tests.kafka import brokers
from tests.outbox import (
    processes,
    recorded_versions,
    relays,
    settings,
)
from tests.outbox.relays import TOPIC

KIND = "product-instance"
pytestmark = pytest.mark.kafka


@pytest.fixture
def topic(broker: KafkaServer) -> str:
    name, _ = brokers.create_topics(broker, [TOPIC, answer.GAPS_TOPIC])
    return name


def record_versions(id: str, count: int, sent: int) -> None:
    for number in range(count):
        with transaction.atomic():
            outbox.record(KIND, id, {"n": number, "text": "ж\n\u2028"}, author="a")
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE outbox_document SET sent = %s WHERE key = %s", [sent, f"{KIND}/{id}"]
        )


def make_request(first: object, last: object, id: object = "A1", kind: object = KIND) -> bytes:
    return json.dumps({"kind": kind, "id": id, "from": first, "to": last}).encode()


def send_requests(broker: KafkaServer, *values: bytes | None) -> None:
    producer = Producer(broker.make_client_config())
    for value in values:
        producer.produce(answer.GAPS_TOPIC, value, partition=0)
    assert producer.flush(20) == 0


def run_outbox_answer(broker: KafkaServer) -> AbstractContextManager[Any]:
    """Run the command `outbox answer` in a thread, and stop the command after the `with` block."""
    conf = OutboxConf.from_setting({**settings.OUTBOX, "KAFKA": broker.make_client_config()})
    return processes.run_in_thread(RequestAnswerer(conf, "default"))


def list_sent_versions(broker: KafkaServer) -> list[tuple[str, int]]:
    return [(message.key, message.version) for message in relays.read_sent(broker)]


def test_outbox_answer_command_resends_only_versions_that_were_sent_before(
    service: str, broker: KafkaServer, topic: str
) -> None:
    """`outbox answer` answers requests for missing versions. It sends the bytes of a version
    unchanged, and leaves the unsent versions to the relay."""
    record_versions("A1", 5, sent=4)
    record_versions("B", 2, sent=2)
    invalid_requests = (
        None,
        b"",
        b"{",
        b"[]",
        make_request(2, 1),
        make_request("x", 2),
        make_request(1, 2, id=""),
    )
    unknown_documents = (make_request(1, 2, kind="of-others"), make_request(1, 2, id="nobody"))
    with run_outbox_answer(broker):
        send_requests(
            broker,
            *invalid_requests,
            *unknown_documents,
            make_request(2, 2**31 - 1),
            make_request(1, 1, "B"),
        )
        relays.wait_until(lambda: len(list_sent_versions(broker)) == 4)
    messages = relays.read_sent(broker)
    assert {(message.key, message.version) for message in messages} == {
        ("A1", n) for n in (2, 3, 4)
    } | {("B", 1)}
    recorded = {
        version.idempotency_key.decode(): version.encode_value()
        for version in recorded_versions.load_versions()
    }
    assert {
        message.idempotency_key: message.value for message in messages
    }.items() <= recorded.items()
    # The next process does not answer the same requests again.
    with run_outbox_answer(broker):
        send_requests(broker, make_request(3, 3))
        relays.wait_until(lambda: len(list_sent_versions(broker)) == 5)


@pytest.mark.one_broker
def test_outbox_answer_command_sends_all_requested_versions_when_they_need_several_reads(
    service: str, broker: KafkaServer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox.relay.answer.VERSIONS_AT_A_TIME", 7)
    record_versions("A1", 20, sent=20)
    with run_outbox_answer(broker):
        send_requests(broker, make_request(1, 20))
        relays.wait_until(lambda: len(list_sent_versions(broker)) == 20)
    expected = [("A1", n) for n in range(1, 21)]
    assert list_sent_versions(broker) == expected


@pytest.mark.one_broker
def test_request_is_answered_by_next_process_when_answering_process_was_killed(
    service: str, broker: KafkaServer, topic: str, database_name: str, tmp_path: Path
) -> None:
    record_versions("A1", 300, sent=300)
    send_requests(broker, make_request(1, 300))

    def start(words: str = "") -> Any:
        variables = {"KAFKA": {**broker.make_client_config(), "linger.ms": 0}}
        return processes.start_command(
            f"outbox answer {words}",
            database_name,
            tmp_path / "log",
            OUTBOX_TEST_SETTINGS=variables,
        )

    with processes.kill_at_end([start()]) as [first]:
        relays.wait_until(lambda: len(list_sent_versions(broker)) > 5, 120)
        first.kill()
    with processes.kill_at_end([start("--until-idle 15")]):
        relays.wait_until(lambda: len({*list_sent_versions(broker)}) == 300, 120)


def test_outbox_answer_until_idle_answers_waiting_requests_before_it_ends(
    service: str, apache: KafkaServer
) -> None:
    """Kafka assigns topic partitions to a new consumer group only after three seconds."""
    brokers.create_topics(apache, [TOPIC, answer.GAPS_TOPIC])
    record_versions("A1", 3, sent=3)
    send_requests(apache, make_request(1, 3))
    conf = OutboxConf.from_setting({**settings.OUTBOX, "KAFKA": apache.make_client_config()})
    RequestAnswerer(conf, "default", until_idle=5).run()
    assert len(list_sent_versions(apache)) == 3


def test_outbox_answer_command_waits_until_brokers_are_up(
    service: str, embedded: KafkaServer
) -> None:
    record_versions("A1", 3, sent=3)
    embedded.kill()
    with run_outbox_answer(embedded):
        embedded.start()  # without topics
        brokers.create_topics(embedded, [TOPIC, answer.GAPS_TOPIC])
        send_requests(embedded, make_request(1, 3))
        relays.wait_until(lambda: len(list_sent_versions(embedded)) == 3, 120)


@pytest.mark.parametrize(
    "value, expected",
    [
        (make_request(1, 1), VersionRequest(KIND, "A1", 1, 1)),
        (make_request(0, 2**31 - 1), VersionRequest(KIND, "A1", 0, 2**31 - 1)),
        (make_request(0, 2**31), None),
        (make_request(-1, 1), None),
        (b'{"kind": "a", "id": "1", "from": Infinity, "to": 1}', None),
        (make_request(1, 1, id="a\0"), None),
        (make_request(1, 1, id="a\ud800"), None),
        (b"[" * 100_000, None),
        (b"\xff", None),
    ],
)
def test_request_is_parsed_only_when_all_its_fields_are_valid(
    value: bytes, expected: VersionRequest | None
) -> None:
    assert answer.parse_request(value) == expected
