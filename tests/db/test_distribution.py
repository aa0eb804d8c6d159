"""Annals detects a distributed database, and reports an error if DATABASE_URL names a Citus
worker."""

from collections.abc import Iterator

import psycopg
import pytest
from django.db import connection
from django.db.backends.signals import connection_created
from psycopg import errors

from annals.management.command_line import WORKER_REFUSAL, refuse_workers, run_command
from annals.operations.health import explain_schema_mismatch
from history.store import distribution
from history.store.database import base
from history.store.distribution import DISTRIBUTED_BY
from tests.db.partitioned import connect_plainly

pytestmark = pytest.mark.django_db


@pytest.fixture
def plain() -> Iterator[psycopg.Connection[object]]:
    with connect_plainly() as session:
        distribution.forget_answer(session)
        yield session
        distribution.forget_answer(session)


@pytest.mark.plain_only("it is about an installation that is not distributed")
def test_single_server_is_not_distributed(plain: psycopg.Connection[object]) -> None:
    assert distribution.is_distributed(plain) is False


@pytest.mark.plain_only("it is about an installation that is not distributed")
def test_database_is_asked_only_once_whether_it_is_distributed(
    plain: psycopg.Connection[object],
) -> None:
    distribution.is_distributed(plain)
    with connect_plainly() as other_session:
        other_session.autocommit = False
        with pytest.raises(errors.DivisionByZero):
            other_session.execute("SELECT 1 / 0")
        assert distribution.is_distributed(other_session) is False, (
            "PostgreSQL would refuse a further query"
        )
        other_session.rollback()


def test_answer_whether_database_is_distributed_comes_from_cache(
    plain: psycopg.Connection[object],
) -> None:
    distribution._answers_by_database[distribution._identify_database(plain)] = True
    assert distribution.is_distributed(plain)


def test_each_distributed_table_has_its_distribution_column(
    plain: psycopg.Connection[object],
) -> None:
    for table, column in DISTRIBUTED_BY.items():
        plain.execute(f"SELECT {column} FROM {table} LIMIT 0")


def test_new_session_is_closed_when_preparing_it_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sessions: list[psycopg.Connection[object]] = []

    def raise_shutdown(session: psycopg.Connection[object]) -> None:
        sessions.append(session)
        raise errors.AdminShutdown("the session was terminated")

    monkeypatch.setattr(base, "prepare_session", raise_shutdown)
    session = connection.copy()
    session.settings_dict["OPTIONS"] = {
        name: value for name, value in session.settings_dict["OPTIONS"].items() if name != "pool"
    }
    with pytest.raises(errors.AdminShutdown):
        session.get_new_connection(session.get_connection_params())
    assert sessions[0].closed


@pytest.mark.django_db(transaction=True)
def test_command_exits_with_one_sentence_when_database_url_names_a_citus_worker(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(distribution, "is_on_worker", lambda _: True)
    refuse_workers()
    try:
        connection.close()
        with pytest.raises(SystemExit) as ended:
            run_command(connection.ensure_connection)
        assert ended.value.code == 1
        assert capsys.readouterr().err == (
            "annals: DATABASE_URL names a worker of a Citus cluster: only `consume` works there. "
            "Give the address of the coordinator (docs/citus.md).\n"
        )
        monkeypatch.undo()
        connection.close()
        connection.ensure_connection()
        assert not connection_created.disconnect(dispatch_uid=WORKER_REFUSAL), "asked once"
    finally:
        connection_created.disconnect(dispatch_uid=WORKER_REFUSAL)


def test_web_reports_that_database_url_names_a_citus_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert explain_schema_mismatch() is None
    monkeypatch.setattr(distribution, "is_on_worker", lambda _: True)
    assert str(explain_schema_mismatch()).startswith("DATABASE_URL names a worker")
