"""A database that does not answer holds up no request for longer than a moment, and no answer goes
out without it."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from annals.access.journal import send, write
from annals.access.journal.days import create
from annals.access.models import JournalEntry
from tests.access.test_journal_failures import API, SECRET
from tests.consuming import until
from tests.db.partitioned import raw, transactional_db
from tests.db.store import Store

__all__ = ["transactional_db"]

TABLE = JournalEntry._meta.db_table


@contextmanager
def silent() -> Iterator[None]:
    """The database does not answer to what adds to the journal, for longer than any test waits."""
    with raw() as other:
        other.execute(
            "CREATE FUNCTION silence() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN PERFORM pg_sleep(600); RETURN NEW; END $$"
        )
        other.execute(
            f"CREATE TRIGGER silence BEFORE INSERT ON {TABLE}"
            " FOR EACH ROW EXECUTE FUNCTION silence()"
        )
        try:
            yield
        finally:
            other.execute("DROP FUNCTION silence CASCADE")


@pytest.fixture
def support(transactional_db: None, client: Client) -> Iterator[Client]:
    create()
    Store().add("A1", 0, {"rate": "1", "number": SECRET}, 0)
    client.force_login(User.objects.get(username="support"))
    yield client
    write._PAUSE.end()
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {TABLE}")


def test_no_request_waits_for_a_silent_database(
    support: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with silent():
        answer = support.get(API)
        assert answer.status_code == 503
        assert SECRET not in answer.content.decode()
        assert "the database does not answer" in caplog.text
        # Nobody waits now, but for one request at a time that tries.
        for _ in range(3):
            assert support.get(API).status_code == 503
        said = "cannot be written: JournalError: the database did not answer a moment ago"
        assert caplog.text.count(said) == 3
        with raw() as other:
            until(
                lambda: (
                    other.execute(
                        "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
                        " AND query LIKE %s",
                        [f"%INSERT INTO public.{TABLE}%"],
                    ).fetchone()
                    == (0,)
                ),
                "the statement was not cancelled",
            )
    until(lambda: support.get(API).status_code == 200, "no answer after the database is back")
    assert JournalEntry.objects.filter(outcome="shown").count() == 1


class Network:
    """Lies between a client and the database, until it hangs: then it takes bytes, and connections,
    and passes nothing on."""

    def __init__(self) -> None:
        mine = connection.settings_dict
        self._server = (mine["HOST"], int(mine["PORT"]))
        self._hangs = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def hang(self) -> None:
        self._hangs.set()

    def _run(self) -> None:
        client = self._listener.accept()[0]
        server = socket.create_connection(self._server)
        other = {client: server, server: client}
        while not self._hangs.is_set():
            for each in select.select(list(other), [], [], 0.05)[0]:
                other[each].sendall(each.recv(65536))
        self._ends.wait()
        for open_one in (client, server, self._listener):
            open_one.close()

    def end(self) -> None:
        self._hangs.set()
        self._ends.set()
        self._thread.join()


@pytest.fixture
def network(db: None) -> Iterator[Network]:
    made = Network()
    yield made
    made.end()


def test_a_network_that_hangs_is_given_up(network: Network) -> None:
    mine = connection.settings_dict
    own = psycopg.connect(
        host="127.0.0.1",
        port=network.port,
        user=mine["USER"],
        password=mine["PASSWORD"],
        dbname=mine["NAME"],
        autocommit=True,
    )
    send.statement(own, "SELECT 1; SELECT 2", 60)
    with pytest.raises(psycopg.errors.DivisionByZero):
        send.statement(own, "SELECT 1; SELECT 1 / 0", 60)
    network.hang()
    with pytest.raises(send.NoAnswerError):
        send.statement(own, "SELECT 3", 0.3)
    write._give_up(own)
    assert own.closed


def test_a_temporary_table_takes_no_rows(support: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TEMPORARY TABLE {TABLE} (LIKE public.{TABLE} INCLUDING ALL)")
    try:
        assert support.get(API).status_code == 200
        with raw() as other:
            (found,) = other.execute(f"SELECT count(*) FROM public.{TABLE}").fetchone() or (0,)
        assert found == 1
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TABLE pg_temp.{TABLE}")
