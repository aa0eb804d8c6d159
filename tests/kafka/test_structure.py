"""docs/structure.md: the way of a message is what it says."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from annals.embedded.broker import Broker
from tests.called_files import ROOT, documented
from tests.consuming import Consumers, Database, environment, send
from tests.messages import TOPIC, value
from tests.processes import consumers, database, server

pytestmark = pytest.mark.kafka
__all__ = ["consumers", "database", "server"]

LEDGER = "ingest/store/ledger.py"
FIRST = "ingest/source/decode.py"
SLOW_PATH = "ingest/store/slow_path.py"


@pytest.fixture
def broker(embedded: Broker) -> Broker:
    return embedded


def called(broker: Broker, database: Database, since: str, id: str) -> list[str]:
    """The files that a consumer calls for a message with this id and a bad one."""
    send(broker.client(), (TOPIC, value(id=id, data={"number": id}), id), (TOPIC, b"bad"))
    command = ["-m", "tests.called_files", since, "consume", "--until-idle", "1"]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT, env=environment(broker, database), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_message_goes_this_way(broker: Broker, consumers: Consumers, database: Database) -> None:
    send(broker.client(), (TOPIC, value(id="first"), "first"))
    consumers.drain()  # its day exists now
    files = documented("The way of a message")
    assert len(files) >= 10
    number = files.index(FIRST)
    assert set(files[:number]) <= set(called(broker, database, "", "a"))
    # What the consumer is built of is called before there is a message.
    found = called(broker, database, FIRST, "b")
    assert set(files[number:]) <= set(found)
    assert SLOW_PATH not in found
    # A heartbeat calls the ledger as well, at a moment that no message decides.
    order = [file for file in files[number:] if file != LEDGER]
    assert [file for file in found if file in order] == order


def test_a_repeat_takes_the_slow_path(
    broker: Broker, consumers: Consumers, database: Database
) -> None:
    send(broker.client(), (TOPIC, value(id="a", data={"number": "a"}), "a"))
    consumers.drain()
    assert SLOW_PATH in called(broker, database, FIRST, "a")
