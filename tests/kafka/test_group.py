"""Members of a group come and go, some without a word: the others soon read every partition."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition

from annals.embedded.broker import Daemon
from ingest.source import kafka
from tests.apache.broker import Apache
from tests.consuming import send, until
from tests.kafka import brokers

pytestmark = pytest.mark.kafka

TOPIC = "shared"
PARTITIONS = 4
GIVEN = {"session.timeout.ms": "3000", "heartbeat.interval.ms": "1000"}
# Twenty session timeouts. Three are enough where the machine is not busy with other things.
PATIENCE_SECONDS = 60

# A process, since only that can be killed or frozen: librdkafka's own threads keep membership up.
MEMBER = """
import json, pathlib, signal, sys
from ingest.source.kafka import Source
bootstrap, group, topic, given, home = sys.argv[1:]
def note(places):
    draft = pathlib.Path(home, "draft")
    draft.write_text(json.dumps(sorted(partition for _, partition in places)))
    draft.rename(pathlib.Path(home, "partitions"))
def taken():
    note([])
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
source = Source(bootstrap, group, [topic], json.loads(given), note, taken, taken)
while not stop:
    source.poll(10, 0.1)
source.close()
"""


class Member:
    """A member of the group in a process of its own."""

    def __init__(self, broker: Daemon, group: str, home: Path) -> None:
        home.mkdir()
        words = (broker.bootstrap_servers(), group, TOPIC, json.dumps(GIVEN), str(home))
        self.process = subprocess.Popen([sys.executable, "-c", MEMBER, *words])
        self._note = home / "partitions"

    @property
    def partitions(self) -> list[int]:
        """The partitions it has, as far as it knows."""
        return list(json.loads(self._note.read_text())) if self._note.exists() else []

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


@pytest.fixture
def members(broker: Daemon, group: str, tmp_path: Path) -> Iterator["Members"]:
    """No member yet, of a group that reads one topic."""
    brokers.create(broker, [TOPIC], PARTITIONS)
    found = Members(broker, group, tmp_path)
    yield found
    for member in found.all:
        member.process.kill()
        member.process.wait(20)


class Members:
    """Makes members, and waits until those named have all partitions between them."""

    def __init__(self, broker: Daemon, group: str, home: Path) -> None:
        self._broker, self._group, self._home = broker, group, home
        self.all: list[Member] = []

    def join(self) -> Member:
        member = Member(self._broker, self._group, self._home / f"member-{len(self.all)}")
        self.all.append(member)
        return member

    def pair(self) -> tuple[Member, Member]:
        """Two that have shared the partitions; the first was alone before, and so leads."""
        first = self.join()
        self.share(first)
        second = self.join()
        self.share(first, second)
        return first, second

    def share(self, *sharing: Member) -> None:
        """Wait until these have each a fair share, and all partitions together."""

        def shares() -> list[list[int]]:
            return [member.partitions for member in sharing]

        def is_fair() -> bool:
            fair = all(len(share) >= PARTITIONS // len(sharing) for share in shares())
            return fair and sorted(chain.from_iterable(shares())) == list(range(PARTITIONS))

        until(is_fair, lambda: f"partitions are shared as {shares()}", PATIENCE_SECONDS)


def leave_together(pair: tuple[Member, Member]) -> None:
    """The leader leaves during the rebalance that the leaving of the other started."""
    for member in reversed(pair):
        member.send(signal.SIGTERM)
        member.process.wait(20)


def test_two_leave_together_and_another_comes(members: Members) -> None:
    leave_together(members.pair())
    members.share(members.join())


def test_two_leave_together_and_a_third_stays(members: Members) -> None:
    pair = members.pair()
    third = members.join()
    members.share(*pair, third)
    leave_together(pair)
    members.share(third)


def test_all_are_killed(members: Members) -> None:
    for member in members.pair():
        member.send(signal.SIGKILL)
    members.share(members.join())


def test_a_client_that_never_joins_again_is_replaced(apache: Apache, group: str) -> None:
    """After a restart of its broker, librdkafka 2.16 was seen to never connect to the coordinator
    again. Here it leaves on its own account: for Annals, and for the brokers, it is the same."""
    brokers.create(apache, [TOPIC], PARTITIONS)
    assigned: list[list[tuple[str, int]]] = []
    lost: list[bool] = []
    source = kafka.Source(
        *(apache.bootstrap_servers(), group, [TOPIC], GIVEN),
        *(assigned.append, lambda: lost.append(True), lambda: lost.append(True)),
    )

    read: list[bytes | None] = []

    def poll() -> bool:
        """Always true."""
        read.extend(message.value for message in source.poll(10, 0.1))
        return True

    until(lambda: poll() and assigned, "no partitions")
    stuck = source._consumer
    source.pause(assigned[0])
    stuck.unsubscribe()
    until(lambda: poll() and len(assigned) == 2, "it is not replaced")
    assert lost == [True]
    assert source._consumer is not stuck
    send(apache.client(), (TOPIC, b"after"))
    source.start(dict.fromkeys(assigned[1], 0))
    until(lambda: poll() and read, "nothing is read")
    source.close()
    assert read == [b"after"]


def test_a_member_without_partitions_is_not_replaced(
    apache: Apache, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More members than partitions: one waits, however long."""
    brokers.create(apache, [TOPIC], 1)
    monkeypatch.setattr(kafka, "STUCK_AFTER_SESSIONS", 1)
    sources = [
        kafka.Source(
            *(apache.bootstrap_servers(), group, [TOPIC], GIVEN),
            *(lambda _: None, lambda: None, lambda: None),
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


def test_no_group_of_another_broker_is_forgotten(
    apache: Apache, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets committed to Apache Kafka stay, however long a member waits for partitions."""
    brokers.create(apache, [TOPIC], PARTITIONS)
    committed = TopicPartition(TOPIC, 0, 7)
    consumer = Consumer({**apache.client(), "group.id": group})
    consumer.commit(offsets=[committed], asynchronous=False)
    consumer.close()
    monkeypatch.setattr(kafka, "STUCK_AFTER_SESSIONS", 0)
    source = kafka.Source(
        *(apache.bootstrap_servers(), group, ["missing"], {}),
        *(lambda _: None, lambda: None, lambda: None),
    )
    for _ in range(20):
        source.poll(1, 0.1)
    client = brokers.admin(apache)
    asked = client.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group, [TopicPartition(TOPIC, 0)])]
    )
    found = asked[group].result(20).topic_partitions
    source.close()
    assert [each.offset for each in found] == [committed.offset]
