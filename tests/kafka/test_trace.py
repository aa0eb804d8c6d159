"""`annals trace` asks the brokers: what is not read yet, and what they deleted unread."""

import json
from typing import Any

import confluent_kafka as ck
import pytest

from annals.embedded import logins
from annals.embedded.broker import Daemon
from tests.apache.broker import Apache
from tests.consuming import Consumers, Database, command, send
from tests.kafka import brokers
from tests.messages import TOPIC, value
from tests.processes import consumers, database, server

pytestmark = pytest.mark.kafka
__all__ = ["consumers", "database", "server"]


def test_read_not_read_yet_and_deleted_unread(
    consumers: Consumers, database: Database, broker: Daemon
) -> None:
    def traced(*words: object) -> dict[str, Any]:
        env = consumers.env | {"DATABASE_URL": database.url_of(logins.WEB)}
        done = command(env, "trace", "--json", *map(str, words))
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def state(offset: int) -> object:
        return traced("--topic", TOPIC, "--partition", 0, "--offset", offset)["state"]

    bad = value(id="A1", version=1, updatedAt="never")
    send(broker.client(), (TOPIC, value(id="A1", version=0)), (TOPIC, bad), (TOPIC, bad))
    assert state(0) == "unread"  # the topic was never read
    consumers.drain("--topics", TOPIC)
    assert [state(offset) for offset in (0, 1)] == ["stored", "quarantined"]
    send(broker.client(), *((TOPIC, value(id="A1", version=n)) for n in (2, 3)))
    assert [state(offset) for offset in (3, 4, 5)] == ["unread", "unread", "unknown"]
    never = traced("--entity", "product-instance", "--id", "A1", "--version", 7)
    assert never["state"] == "unknown"
    if not isinstance(broker, Apache):  # the embedded one deletes no records
        return
    admin = brokers.admin(broker)  # without a name it would be gone before the answer
    [deleted] = admin.delete_records([ck.TopicPartition(TOPIC, 0, 4)]).values()
    deleted.result(20)
    assert [state(offset) for offset in (3, 4)] == ["lost", "unread"]
    consumers.drain("--topics", TOPIC)  # now the ledger knows, without the broker
    assert [state(offset) for offset in (3, 4)] == ["lost", "stored"]
