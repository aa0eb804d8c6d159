"""A cluster and one server that got the same messages give the same answers, byte for byte."""

import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from random import Random
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from django.contrib.auth.models import User
from django.core import signing
from django.core.management import call_command
from django.db import connection
from django.test import Client

from annals.demo.simulator import SimulatedMessage, generate_messages
from history.common import clock
from history.kinds.entities import BY_TOPIC, ENTITIES
from history.retention import packing
from history.store.days import days
from history.store.days.window import Window
from ingest.messages.decode import decode_message
from ingest.messages.message import KafkaMessage, TopicPartition
from ingest.store import ledger
from ingest.store.batch import Batch, Limits
from ingest.store.ledger import Claim
from ingest.store.session import open_connection
from ingest.store.transaction import BatchWriter
from tests.citus.cluster import Citus, disconnect, use_database
from tests.db.partitioned import connect_plainly
from tests.system.test_upgrade import create_database

VERSIONS, ANSWERS = 20_000, 300
BATCH = 1_000
NOW = clock.now()
WINDOW = Window.at(NOW, 90, 14)
SPAN = timedelta(days=6)
DAYS = [(NOW - timedelta(days=number)).date() for number in range(-1, 8)]
PACKED = [(NOW - timedelta(days=number)).date() for number in (5, 3)]
# Parts of answers that differ between two requests or two servers: the id of the request, and the
# moments at which a server stored or checked something.
OF_THE_MOMENT = re.compile(rb'(?<="(?:requestId|checkedAt)":)"[^"]*"|(?<="readAt":)"[^"]*"')
OF_A_FATE = re.compile(rb'(?<="at":)"[^"]*"|\d{4}-\d\d-\d\d \d\d:\d\d(?= UTC)')


class Delivery(NamedTuple):
    """The messages of a simulation in the order in which they are stored.

    Some come late or twice, some are bad, and some never come.
    """

    first: list[KafkaMessage]
    after_packing: list[KafkaMessage]
    fates: Counter[str]


def deliver(messages: Iterable[SimulatedMessage], chance: Random) -> Delivery:
    delivery = Delivery([], [], Counter())
    for message in messages:
        [fate] = chance.choices(
            ["in time", "late", "twice", "bad", "lost"], weights=[910, 50, 20, 10, 10]
        )
        delivery.fates[fate] += 1
        body = message.value
        if fate == "bad":
            body = json.dumps({**json.loads(body), "updatedAt": "never"}).encode()
        sent = KafkaMessage(message.topic, 0, 0, -1, message.key, body)
        if fate in ("in time", "twice", "bad"):
            delivery.first.append(sent)
        if fate in ("late", "twice"):
            delivery.after_packing.append(sent)
    return delivery


@dataclass
class Installation:
    """A database with the tables of Annals, and a client that is logged in there."""

    url: str
    client: Client = field(default_factory=Client)
    _claims: dict[TopicPartition, Claim] = field(default_factory=dict)

    @contextmanager
    def activate(self) -> Iterator[None]:
        with use_database(self.url):
            yield

    def fill(self, delivery: Delivery) -> None:
        """Store `first` of a delivery, pack two days, and store `after_packing`."""
        with connect_plainly() as plain:
            for entity in ENTITIES:
                for day in DAYS:
                    days.create_partition(plain, entity.table, day)
            for topic in BY_TOPIC:
                source = TopicPartition(topic, f"id-of-{topic}", 0)
                self._claims[source] = ledger.claim_partition(plain, source, 0)
        offsets = dict.fromkeys(BY_TOPIC, 0)
        self._write(delivery.first, offsets)
        with connect_plainly() as plain:
            for entity in ENTITIES:
                for day in PACKED:
                    packing.pack_day(plain, entity, day)
        self._write(delivery.after_packing, offsets)
        disconnect()  # the nodes count the rows of a session when it ends
        for words in (("gaps",), ("search", "index")):
            call_command(*words, stdout=io.StringIO())
        self.client.force_login(User.objects.get(username="auditor"))

    def _write(self, messages: Sequence[KafkaMessage], offsets: dict[str, int]) -> None:
        writer = BatchWriter(open_connection)
        sources = {source.topic: source for source in self._claims}
        for start in range(0, len(messages), BATCH):
            batch = Batch(Limits(BATCH, 1 << 30))
            for message in messages[start : start + BATCH]:
                offset = offsets[message.topic]
                offsets[message.topic] = offset + 1
                sent = KafkaMessage(message.topic, 0, offset, -1, message.key, message.value)
                batch.add(decode_message(sent, WINDOW), sources[message.topic], offset, ())
            writer.write(batch, self._claims, {})
        writer.close()

    def get_answer(self, address: str) -> tuple[int, bytes]:
        """Return the status and the body of an answer, without the parts that always differ."""
        response = self.client.get(f"/api/v1/{address}")
        body = OF_THE_MOMENT.sub(b'""', response.content)
        return response.status_code, OF_A_FATE.sub(b"0", body) if "trace?" in address else body


class InstallationPair(NamedTuple):
    """A single server and a cluster that stored the same messages."""

    one_server: Installation
    cluster: Installation
    messages: Sequence[SimulatedMessage]


@pytest.fixture(scope="module")
def installation_pair(distributed: Citus) -> Iterator[InstallationPair]:
    """A single server and a cluster that stored the same messages.

    Each of the two has packed and plain days, late versions, version gaps, and repeated and bad
    messages.
    """
    step = SPAN / VERSIONS
    messages = list(islice(generate_messages(37, NOW - SPAN, step=step), VERSIONS))
    delivery = deliver(messages, Random(37))
    assert min(delivery.fates.values()) > 100
    with create_database("answers_of_one_server", "SELECT 1") as url:
        one_server, cluster = Installation(url), Installation(distributed.url)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(clock, "now", lambda: NOW)
            patch.setattr(signing.time, "time", NOW.timestamp)  # page tokens contain the time
            # A page ends early after some seconds. A busy cluster must have longer.
            patch.setattr("history.timeline.budget.PAGE_SECONDS", 600)
            with one_server.activate():
                call_command("migrate", verbosity=0)
                one_server.fill(delivery)
            with cluster.activate():
                cluster.fill(delivery)
            yield InstallationPair(one_server, cluster, messages)


def generate_addresses(messages: Sequence[SimulatedMessage], chance: Random) -> Iterator[str]:
    """Yield API addresses without end: for one random message after another, all kinds of calls."""
    numbers = [
        number
        for message in messages
        if (number := (json.loads(message.value)["data"] or {}).get("number")) is not None
    ]
    while True:
        message = chance.choice(messages)
        id, version = message.key.decode(), message.version
        document = f"history/{message.entity}/{id}"
        application = f"applications/{message.product_instance_id}"
        moment, later = (
            quote((datetime.fromtimestamp(micros / 1_000_000, UTC)).isoformat())
            for micros in (message.updated_at, message.updated_at + 3_600_000_000)
        )
        yield document
        yield f"{document}?pageSize=2&sort=version&order=asc"
        yield f"{document}?include=diff&tz=Europe/Moscow&to={moment}"
        yield f"{document}?author={message.author or 'nobody'}&clientId={message.client_id}"
        yield f"{document}?path=/status&pageSize=3"
        yield f"{document}/versions/{version}"
        yield f"{document}/versions/{version + 1}"
        yield f"{document}/compare?from={max(version - 1, 0)}&to={version}"
        yield f"{document}/at?time={moment}"
        yield f"{document}/fields?path=/status"
        yield f"{document}/blame"
        yield f"{application}/history"
        yield f"{application}/history?pageSize=3&order=asc"
        yield f"{application}/history?pageSize=4&to={moment}"
        yield f"{application}/at?time={moment}"
        yield f"search?q={quote(str(chance.choice(numbers)))}"
        yield f"search?q={id}"
        yield f"changes?from={moment}&to={later}&pageSize=20"
        yield f"changes?from={moment}&to={later}&clientId={message.client_id}&order=asc"
        yield f"trace?entity={message.entity}&id={id}&version={version}"
        yield f"trace?topic={message.topic}&partition=0&offset={chance.randrange(20_000)}"
        yield f"history/product-instance/nobody{chance.randrange(9)}"
        yield "completeness"


def test_answers_of_cluster_equal_those_of_one_server(installation_pair: InstallationPair) -> None:
    addresses = generate_addresses(installation_pair.messages, Random(37))
    questions: list[str] = []
    differences: list[str] = []
    statuses: Counter[int] = Counter()
    expected: dict[str, tuple[int, bytes]] = {}
    with installation_pair.one_server.activate():
        following: list[str] = []
        while len(questions) < ANSWERS:
            address = following.pop() if following else next(addresses)
            questions.append(address)
            status, body = expected[address] = installation_pair.one_server.get_answer(address)
            statuses[status] += 1
            token = json.loads(body).get("data", {}).get("nextPageToken") if status == 200 else None
            if token is not None and "pageToken" not in address:
                mark = "&" if "?" in address else "?"
                following.append(f"{address}{mark}pageToken={quote(token)}")
    with installation_pair.cluster.activate():
        for address in questions:
            answer = installation_pair.cluster.get_answer(address)
            if answer != expected[address]:
                differences.append(describe_difference(address, expected[address], answer))
    assert not differences, "\n".join(differences)
    assert statuses[200] > 0.8 * ANSWERS
    assert set(statuses) == {200, 404}


def describe_difference(address: str, first: tuple[int, bytes], second: tuple[int, bytes]) -> str:
    """Return the address, and both answers from where they begin to differ."""
    (first_status, first_body), (second_status, second_body) = first, second
    pairs = enumerate(zip(first_body, second_body, strict=False))
    place = next((number for number, (one, other) in pairs if one != other), 0)
    start = max(place - 80, 0)
    return (
        f"{address[:200]}: {first_status} {first_body[start : place + 160]!r},"
        f" {second_status} {second_body[start : place + 160]!r}"
    )


def test_cluster_and_one_server_have_the_same_ledger_and_packed_days(
    installation_pair: InstallationPair,
) -> None:
    rows: list[list[tuple[Any, ...]]] = []
    for installation in (installation_pair.one_server, installation_pair.cluster):
        with installation.activate(), connect_plainly() as plain:
            rows.append(
                plain.execute(
                    "SELECT topic, read, stored, repeated, quarantined FROM ingest_ledger"
                    " ORDER BY topic"
                ).fetchall()
            )
            for day in PACKED:
                assert days.is_packed(plain, ENTITIES[0].table, day)
        connection.close()
    assert rows[0] == rows[1]
    assert sum(row[2] for row in rows[0]) > 0.97 * VERSIONS
