"""A server that cannot archive its WAL: the metric says so, and no longer when it can."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from annals.embedded.postgres import Postgres
from tests.consuming import until

ROOT = Path(__file__).parents[2]
FAST = {"fsync": "off", "shared_buffers": "16MB"}
READ = """
import django
django.setup()
from annals.observe.metrics import wal_archive
print([sample.value for family in wal_archive() for sample in family.samples])
"""

pytestmark = pytest.mark.system


@pytest.fixture
def server() -> Iterator[Postgres]:
    with tempfile.TemporaryDirectory(prefix="annals-wal-") as folder:
        archive = {"archive_mode": "on", "archive_command": "false", "wal_level": "replica"}
        made = Postgres(Path(folder) / "postgres", {**FAST, **archive})
        made.start()
        yield made
        made.stop("immediate")


def values(server: Postgres) -> str:
    """The values that a web process would give, as a list."""
    env = {
        **os.environ,
        "DATABASE_URL": server.url(),
        "DJANGO_SETTINGS_MODULE": "annals.settings",
    }
    done = subprocess.run(
        [sys.executable, "-c", READ], cwd=ROOT, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def counted(plain: psycopg.Connection[tuple[object]], column: str) -> bool:
    """Whether the archiver has counted something there since the latest switch of WAL."""
    row = plain.execute(f"SELECT {column} > 0 FROM pg_stat_archiver").fetchone()
    return row is not None and bool(row[0])


def test_it_fails_and_recovers(server: Postgres) -> None:
    with psycopg.connect(server.url(), autocommit=True) as plain:
        plain.execute("CREATE TABLE something ()")
        plain.execute("SELECT pg_switch_wal()")
        until(lambda: counted(plain, "failed_count"), "no failure")
        assert values(server) == "[True]"
        plain.execute("ALTER SYSTEM SET archive_command = 'true'")
        plain.execute("SELECT pg_reload_conf()")
        until(lambda: counted(plain, "archived_count"), "no success")
        assert values(server) == "[False]"


def test_a_server_without_an_archive_has_no_value(db: None) -> None:
    from annals.observe.metrics import wal_archive

    assert list(wal_archive()) == []
