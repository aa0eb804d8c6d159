"""A consumer repeats an error message as long as PostgreSQL or Kafka denies the consumer a right.

With --until-idle, the consumer ends with the error instead, because waiting does not help.
"""

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

from annals.embedded.broker import KafkaServer
from annals.embedded.process import choose_free_ports
from tests import required_programs
from tests.apache.broker import USER, Apache
from tests.consuming import (
    ConsumerStarter,
    MessageFeed,
    ProductDatabase,
    assert_complete,
    make_environment,
    produce_messages,
    wait_until,
)
from tests.kafka import brokers
from tests.messages import TOPIC, TWIN_TOPIC, make_value
from tests.processes import consumers, database, feed, server

pytestmark = [pytest.mark.kafka, pytest.mark.one_broker]
__all__ = ["consumers", "database", "feed", "server"]

EVERY_ADDRESS = "0.0.0.0"  # noqa: S104
REVOKED = {
    "ingest_ledger": "SELECT, INSERT, UPDATE",
    "product_instance_aud": "INSERT",
}


@pytest.mark.parametrize("table", REVOKED)
def test_run_until_idle_fails_when_its_database_login_lacks_a_right(
    table: str, consumers: ConsumerStarter, database: ProductDatabase, feed: MessageFeed
) -> None:
    """Without --until-idle the consumer repeats its error, and continues once the login has the
    right."""
    feed.send_many(50)
    database.execute(f"REVOKE {REVOKED[table]} ON {table} FROM annals_consumer")
    try:
        ended = consumers.start_consumer("--until-idle", "2")
        assert ended.process.wait(120) == 1
        last = ended.read_log().splitlines()[-1]
        assert last.startswith("annals: the database login of this consumer lacks a right (")
        assert f"permission denied for table {table}" in last
        assert "run `annals grants --apply` as the owner of the tables" in last
        running = consumers.start_consumer()
        wait_until(
            lambda: running.read_log().count("grants --apply` as the owner") > 3, running.read_log
        )
    finally:
        database.execute(f"GRANT {REVOKED[table]} ON {table} TO annals_consumer")
    wait_until(lambda: database.count_stored_versions() == 50, running.read_log)
    running.terminate()
    assert database.list_quarantined() == []
    assert_complete(consumers, database, feed)


def test_run_until_idle_fails_when_tables_are_missing(
    consumers: ConsumerStarter, database: ProductDatabase, feed: MessageFeed
) -> None:
    feed.send_many(5)
    database.execute("ALTER TABLE search_key RENAME TO search_key_away")
    try:
        ended = consumers.start_consumer("--until-idle", "1")
        assert ended.process.wait(120) == 1
    finally:
        database.execute("ALTER TABLE search_key_away RENAME TO search_key")
    last = ended.read_log().splitlines()[-1]
    assert last.startswith("annals: the tables are not those of this release (")
    assert "run `annals migrate`" in last
    consumers.consume_to_end()
    assert database.count_stored_versions() == 5
    assert_complete(consumers, database, feed)


def test_consumer_names_topics_that_do_not_exist_and_reads_other_topics(
    broker: KafkaServer, database: ProductDatabase, tmp_path: Path
) -> None:
    brokers.create_topics(broker, [TOPIC])
    produce_messages(broker.make_client_config(), (TOPIC, make_value(id="a")))
    consumers = ConsumerStarter(make_environment(broker, database), tmp_path)
    try:
        ended = consumers.start_consumer("--topics", f"{TOPIC},{TWIN_TOPIC}", "--until-idle", "2")
        assert ended.wait_for_end()["stored"] == 1
        assert (
            f"the brokers have no topic {TWIN_TOPIC}; the other topics are read" in ended.read_log()
        )
    finally:
        consumers.kill_all()


def test_metrics_need_a_token_when_other_hosts_can_reach_them(
    consumers: ConsumerStarter,
) -> None:
    token = "a-token-of-prometheus"
    [port, second] = choose_free_ports([None, None])
    refused = consumers.start_consumer(
        "--metrics-port", str(port), "--metrics-address", EVERY_ADDRESS
    )
    assert refused.process.wait(120) == 1
    assert "ANNALS_METRICS_TOKEN is not set" in refused.read_log()
    plain = consumers.start_consumer("--metrics-port", str(port))
    guarded = consumers.start_consumer(
        "--metrics-port",
        str(second),
        "--metrics-address",
        EVERY_ADDRESS,
        ANNALS_METRICS_TOKEN=token,
    )
    for running in (plain, guarded):
        running.wait_until_reading()
    [(address, _)] = list_listening_addresses(port)
    assert address == "127.0.0.1"

    def get_status(port: int, path: str, **headers: str) -> int:
        url = f"http://127.0.0.1:{port}{path}"
        return requests.get(url, headers=headers, timeout=120).status_code

    assert get_status(port, "/metrics") == 200
    assert (
        get_status(second, "/metrics")
        == get_status(second, "/metrics", Authorization="Bearer x")
        == 403
    )
    assert get_status(second, "/metrics", Authorization=f"Bearer {token}") == 200
    assert get_status(second, "/healthz") == 200


def list_listening_addresses(port: int) -> list[tuple[str, int]]:
    """Return the addresses of this machine at which a process listens on this port."""
    results = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        address, number = line.split()[1].split(":")
        if line.split()[3] == "0A" and int(number, 16) == port:
            results.append((socket.inet_ntoa(bytes.fromhex(address)[::-1]), port))
    return results


@pytest.fixture
def guarded_broker(tmp_path: Path) -> Iterator[Apache]:
    """A separate Apache Kafka with ACLs. At first the consumer's login does not have rights."""
    required_programs.need_java()
    required_programs.need_maven()
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",  # of the listeners without a password
    }
    node = Apache(tmp_path / "kafka", secured=True, settings=settings, quick=True)
    node.start()
    yield node
    node.kill()


def allow_rights(broker: Apache, kind: ResourceType, name: str, *operations: AclOperation) -> None:
    """Allow the consumer's Kafka login these operations on a topic or a consumer group."""
    rights = [
        AclBinding(
            kind,
            name,
            ResourcePatternType.LITERAL,
            f"User:{USER}",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        for operation in operations
    ]
    client = brokers.make_admin_client(broker)  # must live until the answer is there
    for future in client.create_acls(rights).values():
        future.result(120)


def test_run_until_idle_fails_and_names_topics_that_consumer_may_not_read(
    guarded_broker: Apache, database: ProductDatabase, tmp_path: Path
) -> None:
    brokers.create_topics(guarded_broker, [TOPIC, TWIN_TOPIC])
    produce_messages(
        guarded_broker.make_client_config(),
        (TOPIC, make_value(id="a")),
        (TWIN_TOPIC, make_value(id="b")),
    )
    consumers = ConsumerStarter(
        make_environment(
            guarded_broker, database, guarded_broker.make_client_config("SASL_PLAINTEXT")
        ),
        tmp_path,
    )
    words = ("--topics", f"{TOPIC},{TWIN_TOPIC}", "--until-idle", "3")

    def read_refusal() -> str:
        ended = consumers.start_consumer(*words)
        assert ended.process.wait(120) == 1, ended.read_log()
        last = ended.read_log().splitlines()[-1]
        assert last.startswith("annals: the brokers do not let this login read "), ended.read_log()
        assert "docs/kafka.md has the rights" in last
        return last

    try:
        empty = read_refusal()
        assert f"the topic {TOPIC}" in empty
        assert f"the topic {TWIN_TOPIC}" in empty
        allow_rights(guarded_broker, ResourceType.TOPIC, TOPIC, AclOperation.READ)
        allow_rights(guarded_broker, ResourceType.TOPIC, TWIN_TOPIC, AclOperation.DESCRIBE)
        assert f"the group {consumers.group}" in read_refusal()
        allow_rights(guarded_broker, ResourceType.GROUP, consumers.group, AclOperation.READ)
        partly = read_refusal()
        assert f"the topic {TWIN_TOPIC}" in partly
        assert f"the topic {TOPIC}" not in partly
        assert database.count_stored_versions() == 1  # what could be read is stored
        running = consumers.start_consumer("--topics", f"{TOPIC},{TWIN_TOPIC}")
        wait_until(
            lambda: running.read_log().count("do not let this login read") > 1, running.read_log
        )
        allow_rights(guarded_broker, ResourceType.TOPIC, TWIN_TOPIC, AclOperation.READ)
        wait_until(lambda: database.count_stored_versions() == 2, running.read_log)
        running.terminate()
        assert consumers.consume_to_end("--topics", f"{TOPIC},{TWIN_TOPIC}")["read"] == 0
        assert database.list_quarantined() == []
    finally:
        consumers.kill_all()
