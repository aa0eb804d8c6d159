"""`annals trace` asks the brokers which messages are unread, and which they have deleted."""

import json
from typing import Any

import confluent_kafka as ck
import pytest

from annals.embedded import logins
from annals.embedded.broker import KafkaServer
from tests.apache.broker import Apache
from tests.consuming import ConsumerStarter, ProductDatabase, produce_messages, run_command
from tests.kafka import brokers
from tests.messages import TOPIC, make_value
from tests.processes import consumers, database, server

pytestmark = pytest.mark.kafka
__all__ = ["consumers", "database", "server"]


def test_trace_distinguishes_read_unread_and_deleted_messages(
    consumers: ConsumerStarter, database: ProductDatabase, broker: KafkaServer
) -> None:
    def run_trace(*words: object) -> dict[str, Any]:
        env = consumers.env | {"DATABASE_URL": database.build_url(logins.WEB)}
        process = run_command(env, "trace", "--json", *map(str, words))
        assert process.returncode == 0, process.stderr
        result: dict[str, Any] = json.loads(process.stdout)
        return result

    def trace_state(offset: int) -> object:
        return run_trace("--topic", TOPIC, "--partition", 0, "--offset", offset)["state"]

    bad = make_value(id="A1", version=1, updatedAt="never")
    produce_messages(
        broker.make_client_config(),
        (TOPIC, make_value(id="A1", version=0)),
        (TOPIC, bad),
        (TOPIC, bad),
    )
    assert trace_state(0) == "unread"  # the topic was never read
    consumers.consume_to_end("--topics", TOPIC)
    assert [trace_state(offset) for offset in (0, 1)] == ["stored", "quarantined"]
    produce_messages(
        broker.make_client_config(), *((TOPIC, make_value(id="A1", version=n)) for n in (2, 3))
    )
    assert [trace_state(offset) for offset in (3, 4, 5)] == ["unread", "unread", "unknown"]
    never = run_trace("--entity", "product-instance", "--id", "A1", "--version", 7)
    assert never["state"] == "unknown"
    if not isinstance(broker, Apache):  # the embedded broker cannot delete records
        return
    # The client needs a name: without one it would be collected before the answer.
    admin = brokers.make_admin_client(broker)
    [deleted] = admin.delete_records([ck.TopicPartition(TOPIC, 0, 4)]).values()
    deleted.result(120)
    assert [trace_state(offset) for offset in (3, 4)] == ["lost", "unread"]
    consumers.consume_to_end("--topics", TOPIC)  # the ledger now has the lost offsets
    assert [trace_state(offset) for offset in (3, 4)] == ["lost", "stored"]
