"""Commands and the consumer's connection work on the oldest supported PostgreSQL."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import psycopg
import pytest

from tests.consuming import ROOT
from tests.debian import run_debian_server

PROGRAM = """
import django; django.setup()
from ingest.store.session import open_connection
with open_connection("test") as plain:
    print(plain.execute("SHOW timezone").fetchone()[0], plain.info.server_version)
"""


@pytest.fixture
def url() -> Iterator[str]:
    with run_debian_server() as server_url:
        if not server_url:
            pytest.skip("Debian's PostgreSQL is not installed")
        yield server_url


def run_on_older_server(url: str, *words: str) -> str:
    finished = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ
        | {"DATABASE_URL": url, "ANNALS_DEMO": "true", "DJANGO_SETTINGS_MODULE": "annals.settings"},
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_migrate_and_partitions_commands_work_on_older_postgresql(url: str) -> None:
    with psycopg.connect(url) as plain:
        version = plain.info.server_version
    if version >= 170_000:
        pytest.skip("Debian's PostgreSQL knows all parameters")
    run_on_older_server(url, "manage.py", "migrate")
    assert run_on_older_server(url, "-c", PROGRAM) == f"UTC {version}\n"
    [partition] = json.loads(run_on_older_server(url, "manage.py", "partitions", "list", "--json"))[
        :1
    ]
    assert partition["table"]
