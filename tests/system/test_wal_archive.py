"""The metric of WAL archiving shows that a server cannot archive its WAL, until it can again."""

from collections.abc import Iterator

import psycopg
import pytest

from annals.operations import metrics_page
from tests.consuming import wait_until
from tests.processes import start_own_server

ARCHIVES = {"archive_mode": "on", "archive_command": "false", "wal_level": "replica"}

pytestmark = pytest.mark.system


@pytest.fixture
def archiving_server(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A connection to a PostgreSQL server whose archive_command fails.

    metrics_page uses this connection, too.
    """
    with (
        start_own_server({"shared_buffers": "16MB", **ARCHIVES}) as postgres,
        psycopg.connect(postgres.build_url(), autocommit=True) as connection,
    ):
        monkeypatch.setattr(metrics_page, "connection", connection)
        yield connection


def read_values() -> list[float]:
    return [
        sample.value for family in metrics_page.report_wal_archive() for sample in family.samples
    ]


def test_wal_archive_metric_shows_failure_and_recovery_of_archiving(
    archiving_server: psycopg.Connection[tuple[object, ...]],
) -> None:
    archiving_server.execute("CREATE TABLE something ()")
    archiving_server.execute("SELECT pg_switch_wal()")
    wait_until(lambda: read_values() == [True], "no failure")
    archiving_server.execute("ALTER SYSTEM SET archive_command = 'true'")
    archiving_server.execute("SELECT pg_reload_conf()")
    wait_until(lambda: read_values() == [False], "no success")


def test_wal_archive_metric_is_absent_when_archiving_is_off(db: None) -> None:
    assert read_values() == []
