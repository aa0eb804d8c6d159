"""What cannot go away by waiting is said again and again, and ends a run that has an end."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from annals.embedded.broker import Daemon
from annals.embedded.process import free_ports
from tests import need
from tests.apache.broker import USER, Apache
from tests.consuming import Consumers, Database, Feed, complete, environment, send, until
from tests.kafka import brokers
from tests.messages import TOPIC, TWIN, value
from tests.processes import consumers, database, feed, server

pytestmark = [pytest.mark.kafka, pytest.mark.one_broker]
__all__ = ["consumers", "database", "feed", "server"]

EVERY_ADDRESS = "0.0.0.0"  # noqa: S104
REVOKED = {
    "ingest_ledger": "SELECT, INSERT, UPDATE",
    "product_instance_aud": "INSERT",
}


@pytest.mark.parametrize("table", REVOKED)
def test_run_with_an_end_fails_when_its_login_lacks_rights(
    table: str, consumers: Consumers, database: Database, feed: Feed
) -> None:
    """A run without an end says so again and again, and goes on once the right is there."""
    feed.send(50)
    database.execute(f"REVOKE {REVOKED[table]} ON {table} FROM annals_consumer")
    try:
        ended = consumers.start("--until-idle", "2")
        assert ended.process.wait(60) == 1
        last = ended.said().splitlines()[-1]
        assert last.startswith("annals: the database login of this consumer lacks a right (")
        assert f"permission denied for table {table}" in last
        assert "run `annals grants --apply` as the owner of the tables" in last
        running = consumers.start()
        until(lambda: running.said().count("grants --apply` as the owner") > 3, running.said)
    finally:
        database.execute(f"GRANT {REVOKED[table]} ON {table} TO annals_consumer")
    until(lambda: database.total() == 50, running.said)
    running.terminate()
    assert database.quarantined() == []
    complete(consumers, database, feed)


def test_run_with_an_end_fails_when_tables_are_missing(
    consumers: Consumers, database: Database, feed: Feed
) -> None:
    feed.send(5)
    database.execute("ALTER TABLE search_key RENAME TO search_key_away")
    try:
        ended = consumers.start("--until-idle", "1")
        assert ended.process.wait(60) == 1
    finally:
        database.execute("ALTER TABLE search_key_away RENAME TO search_key")
    last = ended.said().splitlines()[-1]
    assert last.startswith("annals: the tables are not those of this release (")
    assert "run `annals migrate`" in last
    consumers.drain()
    assert database.total() == 5
    complete(consumers, database, feed)


def test_consumer_names_the_topics_that_do_not_exist_and_reads_the_others(
    broker: Daemon, database: Database, tmp_path: Path
) -> None:
    brokers.create(broker, [TOPIC])
    send(broker.client(), (TOPIC, value(id="a")))
    consumers = Consumers(environment(broker, database), tmp_path)
    try:
        ended = consumers.start("--topics", f"{TOPIC},{TWIN}", "--until-idle", "2")
        assert ended.end()["stored"] == 1
        assert f"the brokers have no topic {TWIN}; the others are read" in ended.said()
    finally:
        consumers.stop()


def test_metrics_are_on_the_loopback_address_and_elsewhere_need_a_token(
    consumers: Consumers,
) -> None:
    token = "a-token-of-prometheus"
    [port, other] = free_ports([None, None])
    refused = consumers.start("--metrics-port", str(port), "--metrics-address", EVERY_ADDRESS)
    assert refused.process.wait(60) == 1
    assert "ANNALS_METRICS_TOKEN is not set" in refused.said()
    plain = consumers.start("--metrics-port", str(port))
    guarded = consumers.start(
        "--metrics-port", str(other), "--metrics-address", EVERY_ADDRESS, ANNALS_METRICS_TOKEN=token
    )
    for running in (plain, guarded):
        running.until_reading()
    [(address, _)] = listeners(port)
    assert address == "127.0.0.1"

    def status(port: int, path: str, **headers: str) -> int:
        url = f"http://127.0.0.1:{port}{path}"
        return requests.get(url, headers=headers, timeout=10).status_code

    assert status(port, "/metrics") == 200
    assert status(other, "/metrics") == status(other, "/metrics", Authorization="Bearer x") == 403
    assert status(other, "/metrics", Authorization=f"Bearer {token}") == 200
    assert status(other, "/healthz") == 200


def listeners(port: int) -> list[tuple[str, int]]:
    """The addresses of this machine on which somebody listens at this port."""
    found = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        address, number = line.split()[1].split(":")
        if line.split()[3] == "0A" and int(number, 16) == port:
            found.append((socket.inet_ntoa(bytes.fromhex(address)[::-1]), port))
    return found


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Apache]:
    """Apache Kafka of its own that asks for rights: its login has none yet."""
    need.java()
    need.maven()
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",  # of the listeners without a password
    }
    node = Apache(tmp_path / "kafka", secured=True, settings=settings, quick=True)
    node.start()
    yield node
    node.kill()


def allow(broker: Apache, kind: ResourceType, name: str, *operations: AclOperation) -> None:
    """Give the login rights."""
    rights = [
        AclBinding(
            kind, name, ResourcePatternType.LITERAL, f"User:{USER}", "*", operation,
            AclPermissionType.ALLOW,
        )
        for operation in operations
    ]  # fmt: skip
    client = brokers.admin(broker)  # lives until the answer is there
    for future in client.create_acls(rights).values():
        future.result(20)


def test_consumer_says_what_it_may_not_read_and_a_run_with_an_end_fails(
    guarded: Apache, database: Database, tmp_path: Path
) -> None:
    brokers.create(guarded, [TOPIC, TWIN])
    send(guarded.client(), (TOPIC, value(id="a")), (TWIN, value(id="b")))
    consumers = Consumers(
        environment(guarded, database, guarded.client("SASL_PLAINTEXT")), tmp_path
    )
    words = ("--topics", f"{TOPIC},{TWIN}", "--until-idle", "3")

    def refused() -> str:
        ended = consumers.start(*words)
        assert ended.process.wait(60) == 1, ended.said()
        last = ended.said().splitlines()[-1]
        assert last.startswith("annals: the brokers do not let this login read "), ended.said()
        assert "docs/kafka.md has the rights" in last
        return last

    try:
        nothing = refused()
        assert f"the topic {TOPIC}" in nothing
        assert f"the topic {TWIN}" in nothing
        allow(guarded, ResourceType.TOPIC, TOPIC, AclOperation.READ)
        allow(guarded, ResourceType.TOPIC, TWIN, AclOperation.DESCRIBE)
        assert f"the group {consumers.group}" in refused()
        allow(guarded, ResourceType.GROUP, consumers.group, AclOperation.READ)
        partly = refused()
        assert f"the topic {TWIN}" in partly
        assert f"the topic {TOPIC}" not in partly
        assert database.total() == 1  # what could be read is stored
        running = consumers.start("--topics", f"{TOPIC},{TWIN}")
        until(lambda: running.said().count("do not let this login read") > 1, running.said)
        allow(guarded, ResourceType.TOPIC, TWIN, AclOperation.READ)
        until(lambda: database.total() == 2, running.said)
        running.terminate()
        assert consumers.drain("--topics", f"{TOPIC},{TWIN}")["read"] == 0
        assert database.quarantined() == []
    finally:
        consumers.stop()
