"""Consumers of a real topic: killed, joined by others, and without their database.

`python -m tests.outbox.faults --only inbox` does the long form of the first test.
"""

import secrets
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection

from annals.embedded.broker import Daemon
from outbox.errors import WrongSettings
from outbox.inbox import status
from outbox.inbox.conf import InboxConf
from outbox.inbox.loop import Consume
from outbox.inbox.reader import Reader
from tests.apache.broker import Apache
from tests.kafka import brokers
from tests.kafka.raw_producer import raw_producer
from tests.outbox import consumers, events, processes, relays
from tests.outbox.shop.inbox import EVENTS
from tests.outbox.test_faults import away

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}
pytestmark = pytest.mark.kafka


def test_consumers_that_are_killed(service: str, database_name: str, tmp_path: Path) -> None:
    """They process what is in the table, also without brokers."""
    start = partial(
        consumers.start, NOWHERE, database_name, tmp_path / "log", SECONDS=1, ATTEMPTS=2
    )
    report = events.kills(events.Events(events.to_table, 1), start, times=1, size=50)
    assert report.events > 50
    assert report.dead == 2


def test_a_consumer_reads_until_nothing_comes(service: str, apache: Apache) -> None:
    """Offsets are committed once messages are stored, and messages that came twice are counted."""
    brokers.create(apache, [EVENTS])
    load = events.Events(events.to_topic(apache), 2)
    load.send(100)
    consume(apache, until_idle=5, group="counted").run()
    assert events.check(load) == events.Report(100, load.repeated, 0, 0)
    assert committed(apache) == load.sent
    found = status.read("default")["shop"]
    counts = [found[name] for name in ("stored", "repeated", "attempts", "done")]
    assert counts == [100, load.repeated, 100, 100]


def test_names_of_headers_that_are_not_utf_8(service: str, embedded: Daemon) -> None:
    """The client gives none of the headers then; the messages are known by their places."""
    brokers.create(embedded, [EVENTS])
    lists: list[list[tuple[bytes, bytes | None]]] = [
        [(b"na\xffme", b"1"), (b"idempotency-key", b"x/A/1")],
        [(b"\xff1", None), (b"a", b""), (b"\xff2", b"2"), (b"idempotency-key", b"x/A/2")],
        [(b"idempotency-key", b"x/A/3")],
        [(b"idempotency-key", b"x/A/3")],
    ]
    with raw_producer(embedded.client()) as producer:
        for n, headers in enumerate(lists):
            producer.send(EVENTS, b'{"n": %d}' % n, b"A", headers)
    consume(embedded, until_idle=5).run()
    assert consumers.effects() == [("A", 0), ("A", 1), ("A", 2)]


def test_a_partition_that_comes_back_is_read(service: str, apache: Apache) -> None:
    """Also if it was taken away while the consumer was busy and read nothing."""
    brokers.create(apache, [EVENTS])
    given = {"GROUP": "back", "KAFKA": {**apache.client(), **consumers.SESSION}}
    one = Reader(InboxConf.read(given), "back", [EVENTS], 10)
    share = one._consumer.assignment
    relays.until(lambda: one.read(1, 0.1) or len(share()) == 3)
    other = Reader(InboxConf.read(given), "back", [EVENTS], 10)
    relays.until(
        lambda: one.stay() or other.read(1, 0.1) or (other.joined and 0 < len(share()) < 3)
    )
    one.read(1, 0.1)
    other.close()
    relays.until(lambda: one.read(1, 0.1) or len(share()) == 3)
    load = events.Events(events.to_topic(apache), 5)
    load.send(50)
    found: set[str] = set()

    def all_are_read() -> bool:
        found.update(each.place for each in one.read(100, 0.1))
        return len(found) == load.sent

    relays.until(all_are_read)
    one.close()


def test_a_database_that_is_away(service: str, database_name: str, apache: Apache) -> None:
    """No message is blamed for it."""
    brokers.create(apache, [EVENTS])
    load = events.Events(events.to_topic(apache), 4)
    with processes.in_thread(consume(apache)):
        load.send(50)
        relays.until(consumers.effects)
        with away(database_name):
            with psycopg.connect(service_address(service), autocommit=True) as server:
                server.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = %s AND pid <> %s",
                    [database_name, connection.connection.info.backend_pid],
                )
            load.send(50)
        relays.until(lambda: events.finished(load))
    assert events.check(load).events == 100
    assert not any(each["failures"] for each in status.read("default").values())


def test_a_consumer_with_wrong_settings_does_not_start(service: str) -> None:
    given = {"GROUP": "g", "KAFKA": {}}
    with pytest.raises(WrongSettings, match=r"no bootstrap\.servers"):
        Consume(InboxConf.read(given), "default").run()
    given["KAFKA"] = {"bootstrap.servers": "x:1", "no.such": "1"}
    with pytest.raises(WrongSettings, match="No such configuration property"):
        Consume(InboxConf.read(given), "default").run()


def consume(broker: Daemon, group: str = "", **options: Any) -> Consume:
    given = {**consumers.QUICK, "GROUP": group or secrets.token_hex(4), "KAFKA": broker.client()}
    return Consume(InboxConf.read(given), "default", **options)


def committed(broker: Daemon) -> int:
    """The sum of the offsets of the group."""
    from confluent_kafka import Consumer, TopicPartition

    client = Consumer({**broker.client(), "group.id": "counted"})
    try:
        places = [TopicPartition(EVENTS, number) for number in range(3)]
        return sum(max(each.offset, 0) for each in client.committed(places, timeout=20))
    finally:
        client.close()


def service_address(service: str) -> str:
    return service.replace(connection.settings_dict["NAME"], "postgres")
