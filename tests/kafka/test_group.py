"""After a member joins or leaves a consumer group, all topic partitions are soon read again.

Annals replaces a Kafka client that does not rejoin its group or does not receive messages any more.
"""

import os
import time
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition

from annals.embedded.broker import KafkaServer
from annals.embedded.stuck_group import StuckGroupRemover
from ingest.kafka import source as kafka_source
from ingest.kafka.brokers import Brokers
from ingest.messages.message import KafkaPartition
from tests.apache.broker import Apache
from tests.consuming import ROOT, ConsumerStarter, ProductDatabase, produce_messages, wait_until
from tests.kafka import brokers
from tests.messages import TOPIC, make_value
from tests.processes import consumers, database, server

pytestmark = pytest.mark.kafka
__all__ = ["consumers", "database", "server"]

SHARED = "shared"
PARTITIONS = 4
SHORT_SESSION = {"session.timeout.ms": "3000", "heartbeat.interval.ms": "1000"}
# Twenty session timeouts, for a busy machine. Three are enough on an idle one.
PATIENCE_SECONDS = 60


class SharingMember:
    """A group member in this process, with the topic partitions that are assigned to the member."""

    def __init__(self, broker: KafkaServer, group: str) -> None:
        self.partitions: list[int] = []
        self.source = kafka_source.GroupMember(
            broker.get_bootstrap_servers(),
            group,
            [SHARED],
            SHORT_SESSION,
            self._note_assigned,
            self.partitions.clear,
            self.partitions.clear,
            on_stuck=StuckGroupRemover(broker.make_client_config(), group),
        )

    def _note_assigned(self, partitions: Iterable[KafkaPartition]) -> None:
        self.partitions[:] = [number for _, number in partitions]


def wait_for_fair_shares(*sharing: SharingMember) -> None:
    """Wait until each topic partition has one member, and each member has its fair share."""

    def is_fair() -> bool:
        for member in sharing:
            member.source.poll(10, 0.1)
        shares = [member.partitions for member in sharing]
        fair = all(len(share) >= PARTITIONS // len(sharing) for share in shares)
        return fair and sorted(chain.from_iterable(shares)) == list(range(PARTITIONS))

    wait_until(is_fair, "partitions are not shared", PATIENCE_SECONDS)


def test_group_recovers_when_two_members_leave_together(embedded: KafkaServer, group: str) -> None:
    """The group leader leaves during the rebalance that began when a second member left."""
    brokers.create_topics(embedded, [SHARED], PARTITIONS)
    first = SharingMember(embedded, group)  # alone, and so it leads
    wait_for_fair_shares(first)
    second = SharingMember(embedded, group)
    wait_for_fair_shares(first, second)
    second.source.close()
    first.source.close()
    third = SharingMember(embedded, group)
    wait_for_fair_shares(third)
    third.source.close()


def test_client_that_never_rejoins_its_group_is_replaced(apache: Apache, group: str) -> None:
    """librdkafka 2.16 can fail to connect to the coordinator again after a restart of its broker.
    In this test the client unsubscribes, which looks the same to Annals and to the brokers."""
    brokers.create_topics(apache, [SHARED], PARTITIONS)
    assigned: list[list[tuple[str, int]]] = []
    lost: list[bool] = []
    source = kafka_source.GroupMember(
        apache.get_bootstrap_servers(),
        group,
        [SHARED],
        SHORT_SESSION,
        assigned.append,
        lambda: lost.append(True),
        lambda: lost.append(True),
    )

    read: list[bytes | None] = []

    def poll() -> bool:
        """Read some messages. Return True, for use in a condition."""
        read.extend(message.value for message in source.poll(10, 0.1))
        return True

    wait_until(lambda: poll() and assigned, "no partitions")
    stuck = source._consumer
    source.pause(assigned[0])
    stuck.unsubscribe()
    wait_until(lambda: poll() and len(assigned) == 2, "it is not replaced")
    assert lost == [True]
    assert source._consumer is not stuck
    produce_messages(apache.make_client_config(), (SHARED, b"after"))
    source.start(dict.fromkeys(assigned[1], 0))
    wait_until(lambda: poll() and read, "nothing is read")
    source.close()
    assert read == [b"after"]


def test_client_of_member_without_partitions_is_not_replaced(
    apache: Apache, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group with more members than partitions always has a member without partitions."""
    brokers.create_topics(apache, [SHARED], 1)
    monkeypatch.setattr(kafka_source, "STUCK_AFTER_SESSIONS", 1)
    sources = [
        kafka_source.GroupMember(
            apache.get_bootstrap_servers(),
            group,
            [SHARED],
            SHORT_SESSION,
            lambda _: None,
            lambda: None,
            lambda: None,
        )
        for _ in range(2)
    ]
    clients = [source._consumer for source in sources]
    deadline = time.monotonic() + 3 * 3
    while time.monotonic() < deadline:
        for source in sources:
            source.poll(10, 0.05)
    assert [source._consumer for source in sources] == clients
    for source in sources:
        source.close()


def test_committed_offsets_are_kept_while_member_waits_for_partitions(
    apache: Apache, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apache Kafka keeps offsets that were committed, however long the member waits."""
    brokers.create_topics(apache, [SHARED], PARTITIONS)
    committed = TopicPartition(SHARED, 0, 7)
    consumer = Consumer({**apache.make_client_config(), "group.id": group})
    consumer.commit(offsets=[committed], asynchronous=False)
    consumer.close()
    monkeypatch.setattr(kafka_source, "STUCK_AFTER_SESSIONS", 0)
    source = kafka_source.GroupMember(
        apache.get_bootstrap_servers(),
        group,
        ["missing"],
        {},
        lambda _: None,
        lambda: None,
        lambda: None,
        on_stuck=StuckGroupRemover(apache.make_client_config(), group),
    )
    for _ in range(20):
        source.poll(1, 0.1)
    client = brokers.make_admin_client(apache)
    query = client.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group, [TopicPartition(SHARED, 0)])]
    )
    result = query[group].result(120).topic_partitions
    source.close()
    assert [item.offset for item in result] == [committed.offset]


# Program text that makes a client deliver nothing after its first messages. Annals is not informed
# of this, as if the client had lost its connection to the brokers.
DEAF_CLIENT = """
from ingest.kafka import source as kafka_source
from ingest.kafka.brokers import Brokers

poll, deaf = kafka_source.GroupMember.poll, []

def once(source, limit, timeout):
    messages = poll(source, limit, timeout)
    if messages and not deaf:
        deaf.append(source._consumer)
        source._consumer.pause(source._consumer.assignment())
    return messages

kafka_source.GroupMember.poll = once
"""


@pytest.mark.parametrize("broker", ["apache"], indirect=True)
def test_client_that_delivers_nothing_while_brokers_answer_is_replaced(
    consumers: ConsumerStarter, database: ProductDatabase, broker: KafkaServer, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(DEAF_CLIENT)
    running = consumers.start_consumer(PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))
    running.wait_until_reading()
    produce_messages(broker.make_client_config(), (TOPIC, make_value(id="before")))
    wait_until(lambda: database.count_rows() == 1, running.read_log)
    produce_messages(
        broker.make_client_config(),
        *((TOPIC, make_value(id=f"after-{number}")) for number in range(10)),
    )
    wait_until(lambda: database.count_rows() == 11, running.read_log)
    assert "nothing is delivered, although the brokers answer" in running.read_log()
    running.terminate()
    assert consumers.run_command("ledger").returncode == 0


def test_kafka_client_is_destroyed_only_after_last_answer_of_the_brokers(
    broker: KafkaServer,
) -> None:
    """librdkafka can abort the process if the answer arrives while the client is destroyed."""
    request = Brokers(broker.get_bootstrap_servers(), {}).ask_topics(["any"])
    assert request.get_states().missing == ("any",)
