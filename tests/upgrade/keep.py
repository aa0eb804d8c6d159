"""`python -m tests.upgrade.keep NAME REFERENCE`: keeps tables and answers of a release.

Unpacks the code of the release from Git, stores simulated applications with this code, and writes
the files to tests/upgrade/releases/. Run it once for each release, on the day of its tag.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg
from confluent_kafka import Producer

from annals.embedded import postgres
from annals.embedded.broker import EmbeddedBroker
from annals.embedded.postgres import EmbeddedPostgres
from history.kinds.entities import ENTITIES
from tests.upgrade import earlier
from tests.upgrade.release import KeptRelease, write_release_file

# Lines of a dump that only psql understands, or that PostgreSQL before 17 does not know.
NOT_SQL = re.compile(r"^(\\(un)?restrict .*|SET transaction_timeout = 0;)\n", re.MULTILINE)


def fill_release(release: KeptRelease, broker: EmbeddedBroker) -> None:
    """Store simulated applications, a bad message, a repeated version, and a version gap."""
    load = ("simulate", "--applications", "8", "--seed", "11", "--rps", "0")
    for arguments in (("migrate", "--verbosity", "0"), ("partitions", "maintain"), load):
        release.run_command(*arguments)
    producer = Producer({**broker.make_client_config()})
    topic = ENTITIES[0].topics[0]
    producer.produce(topic, b"not JSON", b"bad")
    for version in (0, 0, 1, 3):
        producer.produce(topic, json.dumps(make_message(version)).encode(), b"G1")
    producer.flush(10)
    release.run_command("consume", "--until-idle", "3")
    release.run_command("gaps")


def make_message(version: int) -> dict[str, object]:
    moment = "2026-11-22T12:00:00.000000"
    data = {"number": "G-1", "rate": 17 + version}
    kind = "UPDATE" if version else "CREATE"
    return {
        "id": "G1",
        "version": version,
        "type": kind,
        "updatedAt": moment,
        "clientId": "kept",
        "data": data,
    }


def list_addresses(url: str) -> list[str]:
    """Return the addresses of the timelines to keep.

    These are the timelines of all applications with their children, and for each kind the timeline
    of one document.
    """
    paths = []
    with psycopg.connect(url) as plain:
        for (root,) in plain.execute(f"SELECT DISTINCT id FROM {ENTITIES[0].table} ORDER BY id"):
            paths.append(f"applications/{root}/history?pageSize=500")
        for entity in ENTITIES:
            row = plain.execute(f"SELECT min(id) FROM {entity.table}").fetchone()
            if row is not None and row[0] is not None:
                paths.append(f"history/{entity.name}/{row[0]}?pageSize=500")
    return paths


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.upgrade.keep", description=__doc__)
    parser.add_argument("name", help="the number of the release, such as 0.1.0")
    parser.add_argument("reference", help="the tag or commit of the release")
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="annals-release-"))
    folder.chmod(0o755)
    root = earlier.unpack_release(options.reference, folder / "code")
    server, broker = EmbeddedPostgres(folder / "postgres"), EmbeddedBroker(folder / "broker")
    try:
        server.start()
        broker.start()
        kafka = {"KAFKA_BOOTSTRAP_SERVERS": broker.get_bootstrap_servers()}
        release = KeptRelease(root, server.build_url(), folder / "home", kafka)
        fill_release(release, broker)
        answers = {
            "ledger": release.read_ledger(),
            "answers": release.fetch_answers(
                *list_addresses(server.build_url()), "history/product-instance/G1?pageSize=500"
            ),
        }
        dump = subprocess.run(
            [
                postgres.find_programs() / "pg_dump",
                "--no-owner",
                "--no-privileges",
                "--inserts",
                "--rows-per-insert=50",
                server.build_url(),
            ],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    finally:
        broker.kill()
        server.stop("immediate")
        shutil.rmtree(folder, ignore_errors=True)
    write_release_file(options.name, "sql", NOT_SQL.sub("", dump))
    write_release_file(options.name, "json", json.dumps(answers, ensure_ascii=False, indent=0))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
