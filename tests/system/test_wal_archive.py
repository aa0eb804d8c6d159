"""A server that cannot archive its WAL: the metric says so, and no longer when it can."""

from collections.abc import Iterator

import psycopg
import pytest

from annals.observe import metrics
from tests.consuming import until
from tests.processes import own_server

ARCHIVES = {"archive_mode": "on", "archive_command": "false", "wal_level": "replica"}

pytestmark = pytest.mark.system


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """The server, in the place of the web's database."""
    with (
        own_server({"shared_buffers": "16MB", **ARCHIVES}) as made,
        psycopg.connect(made.url(), autocommit=True) as connection,
    ):
        monkeypatch.setattr(metrics, "connection", connection)
        yield connection


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
