"""The messages of the producers in examples/ are stored, and can be read as a timeline.

`python -m pytest -m languages tests/kafka/test_producers.py` runs the producers in Java and Go,
which download their Kafka clients.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from annals.embedded import logins
from annals.embedded.broker import KafkaServer
from tests import required_programs
from tests.consuming import ROOT, ConsumerStarter, ProductDatabase, run_command
from tests.messages import TOPIC
from tests.processes import consumers, database, server

pytestmark = pytest.mark.kafka
__all__ = ["consumers", "database", "server"]

PRODUCERS = ROOT / "examples" / "producers"
TIMELINE = """
import json
from history import timeline
from history.kinds.entities import BY_NAME
from tests.db.store import HOST
query = timeline.TimelineQuery(entity=BY_NAME["product-instance"], id="A1")
page = timeline.fetch_page(HOST, query)
print(json.dumps([[version.version, version.author.login, version.client_id,
    [[labelled.change.path, labelled.change.old, labelled.change.new]
      for labelled in version.changes or ()]]
    for version in page.versions]))
"""


def run_and_compare(
    consumers: ConsumerStarter,
    database: ProductDatabase,
    broker: KafkaServer,
    where: Path,
    *words: str,
) -> None:
    """Run a producer, consume its messages, and compare the timeline with the expected one."""
    address = str(broker.make_client_config()["bootstrap.servers"])
    arguments = (address, TOPIC, "A1")
    if "{}" in words[-1]:  # Maven takes the arguments of a program as one word
        words, arguments = words[:-1], (words[-1].format(" ".join(arguments)),)
    process = subprocess.run(
        [*words, *arguments], cwd=where, capture_output=True, text=True, timeout=300
    )
    assert process.returncode == 0, process.stdout + process.stderr
    summary = consumers.consume_to_end("--topics", TOPIC, idle=0.5)
    assert (summary["read"], summary["stored"], summary["quarantined"]) == (3, 3, 0)
    web = consumers.env | {"DATABASE_URL": database.build_url(logins.WEB)}
    read = run_command(web, "shell", "--no-imports", "-c", TIMELINE)
    assert read.returncode == 0, read.stderr
    language = database.query("SELECT DISTINCT client_id FROM product_instance_aud")
    [client] = [row["client_id"] for row in language]
    assert json.loads(read.stdout) == [
        [3, "m.prygunov", client, [["/rate", "17.9", "17.2"]]],
        [2, "m.prygunov", client, [["/rate", "18.4", "17.9"]]],
        [1, "m.prygunov", client, []],
    ]
    assert client.startswith("example-")


@pytest.mark.parametrize("broker", ["embedded"], indirect=True)
def test_messages_of_python_example_are_stored(
    consumers: ConsumerStarter, database: ProductDatabase, broker: KafkaServer
) -> None:
    run_and_compare(consumers, database, broker, PRODUCERS, sys.executable, "produce.py")


@pytest.mark.languages
@pytest.mark.parametrize("broker", ["apache"], indirect=True)
def test_messages_of_java_example_are_stored(
    consumers: ConsumerStarter, database: ProductDatabase, broker: KafkaServer, tmp_path: Path
) -> None:
    required_programs.need_java()
    required_programs.need_program("mvn", "maven")
    folder = shutil.copytree(PRODUCERS / "java", tmp_path / "java")
    maven = ("mvn", "--batch-mode", "--quiet", "compile", "exec:java", "-Dexec.args={}")
    run_and_compare(consumers, database, broker, folder, *maven)


@pytest.mark.languages
@pytest.mark.parametrize("broker", ["apache"], indirect=True)
def test_messages_of_go_example_are_stored(
    consumers: ConsumerStarter, database: ProductDatabase, broker: KafkaServer
) -> None:
    run_and_compare(
        consumers, database, broker, PRODUCERS / "go", required_programs.go(), "run", "."
    )
