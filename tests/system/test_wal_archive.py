"""A server that cannot archive its WAL: the metric says so, and no longer when it can."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from annals.embedded.postgres import Postgres
from annals.observe import metrics
from tests.consuming import until

ARCHIVES = {"archive_mode": "on", "archive_command": "false", "wal_level": "replica"}

pytestmark = pytest.mark.system


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """The server, in the place of the web's database."""
    with tempfile.TemporaryDirectory(prefix="annals-wal-") as folder:
        made = Postgres(Path(folder) / "postgres", {"shared_buffers": "16MB", **ARCHIVES})
        made.start()
        with psycopg.connect(made.url(), autocommit=True) as connection:
            monkeypatch.setattr(metrics, "connection", connection)
            yield connection
        made.stop("immediate")


def values() -> list[float]:
    return [sample.value for family in metrics.wal_archive() for sample in family.samples]


def test_it_fails_and_recovers(plain: psycopg.Connection[tuple[object, ...]]) -> None:
    plain.execute("CREATE TABLE something ()")
    plain.execute("SELECT pg_switch_wal()")
    until(lambda: values() == [True], "no failure")
    plain.execute("ALTER SYSTEM SET archive_command = 'true'")
    plain.execute("SELECT pg_reload_conf()")
    until(lambda: values() == [False], "no success")


def test_a_server_without_an_archive_has_no_value(db: None) -> None:
    assert values() == []
