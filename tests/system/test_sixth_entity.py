"""Adding a sixth kind of entity is one declaration and one migration, nothing else."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from annals.embedded import logins
from annals.embedded.daemon import Daemon
from annals.embedded.postgres import Postgres
from tests.consuming import ROOT, Consumers, Database, command, environment, send
from tests.kafka import brokers
from tests.messages import value
from tests.processes import server

pytestmark = pytest.mark.system
__all__ = ["server"]

DECLARED = '    Entity("insurance-policy", "Insurance policy", "Страховой полис"),\n)\n\nROOT ='
TOPIC = "top-storage.export.insurance-policy"
ASK = """
import base64, django, json, sys
django.setup()
from django.test import Client
word = "Basic " + base64.b64encode(b"support:support").decode()
for address in sys.argv[1:]:
    answer = Client().get(address, HTTP_AUTHORIZATION=word)
    print(json.dumps([answer.status_code, json.loads(answer.content)]))
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The project with one more declaration."""
    there = tmp_path / "project"
    names = ("annals", "history", "ingest", "manage.py")
    for name in names:
        source = ROOT / name
        if source.is_dir():
            unwanted = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, there / name, ignore=unwanted)
        else:
            shutil.copy(source, there / name)
    entities = there / "history" / "entities.py"
    text = entities.read_text()
    assert text.count(")\n\nROOT =") == 1
    entities.write_text(text.replace(")\n\nROOT =", DECLARED))
    return there


@pytest.fixture
def database(server: Postgres) -> Iterator[Database]:
    """An empty database."""
    with psycopg.connect(server.url("postgres"), autocommit=True) as plain:
        plain.execute(f"CREATE DATABASE sixth OWNER {logins.OWNER}")
        yield Database(server, "sixth", server.url("sixth"))
        plain.execute("DROP DATABASE sixth WITH (FORCE)")


def test_one_declaration_and_one_migration(
    copy: Path, database: Database, broker: Daemon, tmp_path: Path
) -> None:
    env = environment(broker, database) | {"ANNALS_DEMO": "true"}
    for words in (
        ("makemigrations", "history"),
        ("migrate",),
        ("grants", "--apply"),
        ("partitions", "maintain"),
    ):
        done = command(env, *words, root=copy)
        assert done.returncode == 0, done.stderr
    before = {path.name for path in (ROOT / "history" / "migrations").glob("0*.py")}
    after = {path.name for path in (copy / "history" / "migrations").glob("0*.py")}
    assert len(after - before) == 1

    brokers.create(broker, [TOPIC], partitions=1)
    bodies = [value(id="P1", version=n, productInstanceId="A1", data={"sum": n}) for n in range(3)]
    send(broker.client(), *((TOPIC, body, "P1") for body in bodies), (TOPIC, b"bad"))
    consumers = Consumers(env, tmp_path, root=copy)
    summary = consumers.drain("--topics", TOPIC)
    assert (summary["stored"], summary["quarantined"]) == (3, 1)

    asked = subprocess.run(
        [sys.executable, "-c", ASK, "/api/v1/history/insurance-policy/P1",
         "/api/v1/applications/A1/history"],
        cwd=copy, capture_output=True, text=True,
        env={**env, "DATABASE_URL": database.url_of(logins.WEB),
             "DJANGO_SETTINGS_MODULE": "annals.settings",
             "ANNALS_ALLOWED_HOSTS": "testserver"},
    )  # fmt: skip
    assert asked.returncode == 0, asked.stderr
    answers = asked.stdout.splitlines()
    assert len(answers) == 2
    for line in answers:
        status, answer = json.loads(line)
        assert status == 200, answer
        assert [each["version"] for each in answer["data"]["history"]] == [2, 1, 0]
        assert answer["data"]["history"][0]["entity"] == {"sum": 2}
    listed = command(env, "partitions", "list", "--json", root=copy)
    assert "insurance_policy_aud" in listed.stdout
