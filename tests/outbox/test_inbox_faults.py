"""The inbox processes each message once although consumers are killed, join the group, or lose the
database.

`python -m tests.outbox.faults --only inbox` is a long form of the first test.
"""

import secrets
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection

from annals.embedded.broker import KafkaServer
from outbox.errors import WrongSettingsError
from outbox.inbox import status
from outbox.inbox.conf import InboxConf
from outbox.inbox.loop import InboxConsumer
from outbox.inbox.reader import TopicReader
from tests.apache.broker import Apache
from tests.kafka import brokers
from tests.kafka.raw_producer import open_raw_producer
from tests.outbox import consumers, events, processes, relays
from tests.outbox.shop.inbox import EVENTS
from tests.outbox.test_faults import refuse_connections

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}
pytestmark = pytest.mark.kafka


def test_killed_consumers_process_each_message_once(
    service: str, database_name: str, tmp_path: Path
) -> None:
    """The consumers process the messages in the table, even without brokers."""
    start = partial(
        consumers.start_consumer, NOWHERE, database_name, tmp_path / "log", SECONDS=1, ATTEMPTS=2
    )
    report = events.kill_consumers_under_load(
        events.EventSender(events.deliver_to_table, 1), start, times=1, size=50
    )
    assert report.events > 50
    assert report.dead == 2


def test_inbox_consumer_stores_messages_and_commits_offsets_until_it_is_idle(
    service: str, apache: Apache
) -> None:
    """An offset is committed after its message is stored. Messages that came twice are counted."""
    brokers.create_topics(apache, [EVENTS])
    load = events.EventSender(events.make_topic_delivery(apache), 2)
    load.send_events(100)
    make_consumer(apache, until_idle=5, group="counted").run()
    assert events.check_events(load) == events.EventReport(100, load.repeated, 0, 0)
    assert sum_committed(apache) == load.sent
    figures = status.read_status("default")["shop"]
    counts = [figures[name] for name in ("stored", "repeated", "attempts", "done")]
    assert counts == [100, load.repeated, 100, 100]


def test_message_is_identified_by_its_offset_when_a_header_name_is_not_utf_8(
    service: str, embedded: KafkaServer
) -> None:
    """The Kafka client then returns no headers of the message."""
    brokers.create_topics(embedded, [EVENTS])
    lists: list[list[tuple[bytes, bytes | None]]] = [
        [(b"na\xffme", b"1"), (b"idempotency-key", b"x/A/1")],
        [(b"\xff1", None), (b"a", b""), (b"\xff2", b"2"), (b"idempotency-key", b"x/A/2")],
        [(b"idempotency-key", b"x/A/3")],
        [(b"idempotency-key", b"x/A/3")],
    ]
    with open_raw_producer(embedded.make_client_config()) as producer:
        for n, headers in enumerate(lists):
            producer.send_message(EVENTS, b'{"n": %d}' % n, b"A", headers)
    make_consumer(embedded, until_idle=5).run()
    assert consumers.list_effects() == [("A", 0), ("A", 1), ("A", 2)]


def test_partition_is_read_when_it_is_assigned_again(service: str, apache: Apache) -> None:
    """The reader had paused the topic partition before it was assigned to a second reader."""
    brokers.create_topics(apache, [EVENTS])
    setting = {"GROUP": "back", "KAFKA": {**apache.make_client_config(), **consumers.SESSION}}
    reader = TopicReader(InboxConf.from_setting(setting), "back", [EVENTS], 10)
    share = reader._consumer.assignment
    relays.wait_until(lambda: reader.read_messages(1, 0.1) or len(share()) == 3)
    other_reader = TopicReader(InboxConf.from_setting(setting), "back", [EVENTS], 10)
    relays.wait_until(
        lambda: (
            reader.stay_in_group()
            or other_reader.read_messages(1, 0.1)
            or (other_reader.joined and 0 < len(share()) < 3)
        )
    )
    reader.read_messages(1, 0.1)
    other_reader.close()
    relays.wait_until(lambda: reader.read_messages(1, 0.1) or len(share()) == 3)
    load = events.EventSender(events.make_topic_delivery(apache), 5)
    load.send_events(50)
    places: set[str] = set()

    def is_everything_read() -> bool:
        places.update(message.place for message in reader.read_messages(100, 0.1))
        return len(places) == load.sent

    relays.wait_until(is_everything_read)
    reader.close()


def test_database_outage_does_not_count_as_failure_of_messages(
    service: str, database_name: str, apache: Apache
) -> None:
    brokers.create_topics(apache, [EVENTS])
    load = events.EventSender(events.make_topic_delivery(apache), 4)
    with processes.run_in_thread(make_consumer(apache)):
        load.send_events(50)
        relays.wait_until(consumers.list_effects)
        with refuse_connections(database_name):
            with psycopg.connect(get_server_address(service), autocommit=True) as server:
                server.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = %s AND pid <> %s",
                    [database_name, connection.connection.info.backend_pid],
                )
            load.send_events(50)
        relays.wait_until(lambda: events.is_finished(load))
    assert events.check_events(load).events == 100
    assert not any(
        handler_status["failures"] for handler_status in status.read_status("default").values()
    )


def test_consumer_with_wrong_settings_does_not_start(service: str) -> None:
    setting = {"GROUP": "g", "KAFKA": {}}
    with pytest.raises(WrongSettingsError, match=r"no bootstrap\.servers"):
        InboxConsumer(InboxConf.from_setting(setting), "default").run()
    setting["KAFKA"] = {"bootstrap.servers": "x:1", "no.such": "1"}
    with pytest.raises(WrongSettingsError, match="No such configuration property"):
        InboxConsumer(InboxConf.from_setting(setting), "default").run()


def make_consumer(broker: KafkaServer, group: str = "", **options: Any) -> InboxConsumer:
    setting = {
        **consumers.QUICK,
        "GROUP": group or secrets.token_hex(4),
        "KAFKA": broker.make_client_config(),
    }
    return InboxConsumer(InboxConf.from_setting(setting), "default", **options)


def sum_committed(broker: KafkaServer) -> int:
    """Return the sum of the committed offsets of the group."""
    from confluent_kafka import Consumer, TopicPartition

    client = Consumer({**broker.make_client_config(), "group.id": "counted"})
    try:
        partitions = [TopicPartition(EVENTS, number) for number in range(3)]
        return sum(
            max(partition.offset, 0) for partition in client.committed(partitions, timeout=120)
        )
    finally:
        client.close()


def get_server_address(service: str) -> str:
    return service.replace(connection.settings_dict["NAME"], "postgres")
