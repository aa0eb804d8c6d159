"""A client to which nothing is delivered any more, and that reports nothing, is replaced."""

import os
from pathlib import Path

import pytest

from annals.embedded.broker import Daemon
from tests.consuming import ROOT, Consumers, Database, send, until
from tests.messages import TOPIC, value
from tests.processes import consumers, database, server

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("topics")]
__all__ = ["consumers", "database", "server"]

# After its first message the client delivers nothing. Annals is not asked and not informed, as with
# a client that lost its way to the brokers.
DEAF = """
from ingest.source import kafka

poll, deaf = kafka.Source.poll, []

def once(source, limit, timeout):
    messages = poll(source, limit, timeout)
    if messages and not deaf:
        deaf.append(source._consumer)
        source._consumer.pause(source._consumer.assignment())
    return messages

kafka.Source.poll = once
"""


@pytest.mark.parametrize("broker", ["apache"], indirect=True)
def test_a_client_that_delivers_nothing_is_replaced(
    consumers: Consumers, database: Database, broker: Daemon, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(DEAF)
    running = consumers.start(PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))
    running.until_reading()
    send(broker.client(), (TOPIC, value(id="before")))
    until(lambda: database.count() == 1, running.said)
    send(broker.client(), *((TOPIC, value(id=f"after-{number}")) for number in range(10)))
    until(lambda: database.count() == 11, running.said)
    assert "nothing is delivered although the brokers answer" in running.said()
    running.terminate()
    assert consumers.manage("ledger").returncode == 0
