"""Adding a sixth kind of entity is one declaration, nothing else."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from annals.embedded import logins
from annals.embedded.broker import Daemon
from tests.consuming import ROOT, Consumers, Database, command, environment, send
from tests.kafka import brokers
from tests.messages import value
from tests.processes import database, server

pytestmark = [pytest.mark.system, pytest.mark.one_broker]
__all__ = ["database", "server"]

DECLARED = """
extends = "default"

[[kind]]
name = "insurance-policy"
title = { en = "Insurance policy", ru = "Страховой полис" }
topic = "top-storage.export.insurance-policy"
parent = "productInstanceId"
"""
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


def test_one_declaration(database: Database, broker: Daemon, tmp_path: Path) -> None:
    file = tmp_path / "kinds.toml"
    file.write_text(DECLARED, encoding="utf-8")
    declared = {"ANNALS_DEMO": "true", "ANNALS_ENTITIES_FILE": str(file)}
    declared["ANNALS_RETENTION_DAYS"] = "2"  # few days to make, and none expires at midnight
    env = environment(broker, database) | declared
    for words in (
        ("migrate",),
        ("grants", "--apply"),
        ("partitions", "maintain"),
    ):
        done = command(env, *words)
        assert done.returncode == 0, done.stderr

    brokers.create(broker, [TOPIC], partitions=1)
    bodies = [value(id="P1", version=n, productInstanceId="A1", data={"sum": n}) for n in range(3)]
    send(broker.client(), *((TOPIC, body, "P1") for body in bodies), (TOPIC, b"bad"))
    consumers = Consumers(env, tmp_path)
    summary = consumers.drain("--topics", TOPIC)
    assert (summary["stored"], summary["quarantined"]) == (3, 1)

    asked = subprocess.run(
        [sys.executable, "-c", ASK, "/api/v1/history/insurance-policy/P1",
         "/api/v1/applications/A1/history"],
        cwd=ROOT, capture_output=True, text=True,
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
    listed = command(env, "partitions", "list", "--json")
    assert "insurance_policy_aud" in listed.stdout
