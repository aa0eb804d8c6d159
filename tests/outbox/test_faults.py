"""Relays that are killed, frozen or cut off: every version arrives, in order of its document.

`python -m tests.outbox.faults --kills 25` does the long form of the first test.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from django.db import transaction

import outbox
from annals.embedded.broker import Broker
from outbox.models import Document
from outbox.writer import Change
from tests.apache.broker import Apache
from tests.kafka import brokers
from tests.outbox import processes, relays
from tests.outbox.load import Load, kills
from tests.outbox.relays import TOPIC

pytestmark = pytest.mark.kafka


def test_relays_that_are_killed_at_many_moments(
    service: str, database_name: str, embedded: Broker, tmp_path: Path
) -> None:
    brokers.create(embedded, [TOPIC])
    assert kills(embedded, database_name, tmp_path / "log", times=4, seed=1) > 100


def test_a_frozen_relay_that_wakes_sends_nothing_new(
    service: str, database_name: str, embedded: Broker, tmp_path: Path
) -> None:
    """Its buckets are taken over while it is frozen. Awake, it finds itself fenced, and joins as
    another relay."""
    brokers.create(embedded, [TOPIC])
    load = Load(documents=50, seed=2)
    log = tmp_path / "log"
    started = [relays.start(embedded, database_name, log) for _ in range(2)]
    with processes.kept(started) as [frozen, other]:
        relays.until(lambda: relays.shares() == [32, 32])
        with load.running():
            relays.until(lambda: load.recorded > 200)
            frozen.send_signal(signal.SIGSTOP)
            relays.until(lambda: relays.shares() == [64])
            relays.until(lambda: not relays.waiting() or load.recorded > 1_000)
            frozen.send_signal(signal.SIGCONT)
            relays.until(lambda: relays.shares() == [32, 32])
        relays.until(lambda: not relays.waiting())
        frozen.send_signal(signal.SIGTERM)
        other.send_signal(signal.SIGTERM)
        assert [frozen.wait(20), other.wait(20)] == [0, 0]
    relays.check(relays.sent(embedded), load.newest)
    assert "others took over" in (tmp_path / "log").read_text()


def test_a_database_that_is_away(service: str, database_name: str, embedded: Broker) -> None:
    """The relay keeps its buckets, and what Kafka has confirmed meanwhile is not sent again."""
    brokers.create(embedded, [TOPIC])
    load = Load(documents=20, seed=3)
    # A machine that stands still for a second is no outage of Kafka, which is allowed half of this.
    with relays.thread(embedded, LEASE_SECONDS=20), load.running():
        for _ in range(4):
            before = load.recorded
            relays.until(lambda before=before: load.recorded > before + 100)  # type: ignore[misc]
            with away(database_name):
                before = load.recorded
                relays.until(lambda before=before: load.recorded > before + 20)  # type: ignore[misc]
        load.stop()
        relays.until(lambda: not relays.waiting())
    assert relays.check(relays.sent(embedded), load.newest) == 0


def test_a_broker_that_is_killed(service: str, apache: Apache) -> None:
    """Nothing is given up, nobody is blamed, and it goes on when the broker is back."""
    brokers.create(apache, [TOPIC])
    load = Load(documents=20, seed=4)
    with relays.thread(apache), load.running():
        relays.until(lambda: load.recorded > 100)
        apache.kill()
        before = load.recorded
        relays.until(lambda: load.recorded > before + 100)
        relays.until(lambda: relays.rows("SELECT FROM outbox_relay WHERE last_error <> ''"))
        assert not Document.objects.filter(attempts__gt=0).exists()
        load.stop()
        assert relays.waiting()
        apache.start()
        relays.until(lambda: not relays.waiting())
    relays.check(relays.sent(apache), load.newest)


def test_a_writer_that_keeps_a_document_locked_delays_only_its_row(
    service: str, embedded: Broker
) -> None:
    """The relay sends what is committed, and writes later that it is sent; nothing goes twice."""
    brokers.create(embedded, [TOPIC])
    load = Load(documents=3, seed=5)
    load.record("A0")
    with relays.thread(embedded):
        relays.until(lambda: not relays.waiting())
        with locked(service, "product-instance/A0"):
            load.record("A1")
            relays.until(lambda: Document.objects.get(pk="product-instance/A1").sent == 1)
        load.record("A0")
        relays.until(lambda: not relays.waiting())
    assert relays.check(relays.sent(embedded), load.newest) == 0


def test_documents_that_a_writer_has_locked_hide_no_others(service: str, embedded: Broker) -> None:
    """A transaction over thousands of documents whose earlier versions are still to be marked."""
    brokers.create(embedded, [TOPIC])
    many = {f"A{n}": 1 for n in range(2_500)}
    with transaction.atomic():
        outbox.record_many([Change("product-instance", id, {}) for id in many])
    load = Load(documents=1, seed=7)
    with relays.thread(embedded):
        with locked(service, *(f"product-instance/{id}" for id in many)):
            relays.until(lambda: len(relays.sent(embedded)) == len(many))
            load.record("B")
            relays.until(lambda: Document.objects.get(pk="product-instance/B").sent == 1)
        relays.until(lambda: not relays.waiting())
    assert relays.check(relays.sent(embedded), {**many, "B": 1}) == 0


def test_versions_that_are_not_committed_are_not_sent(service: str, embedded: Broker) -> None:
    """Also a version with a lower number of the sequence of another document that commits later."""
    brokers.create(embedded, [TOPIC])
    load = Load(documents=2, seed=6)
    open_, done = threading.Event(), threading.Event()
    slow = threading.Thread(target=load.slowly, args=("A0", open_, done))
    with relays.thread(embedded):
        slow.start()
        open_.wait(10)
        load.record("A1")
        relays.until(lambda: Document.objects.filter(pk="product-instance/A1", sent=1).exists())
        done.set()
        slow.join()
        relays.until(lambda: Document.objects.get(pk="product-instance/A0").sent == 1)
    assert [each.key for each in relays.sent(embedded) if each.key == "A0"] == ["A0"]


@contextmanager
def locked(database: str, *keys: str) -> Iterator[None]:
    with psycopg.connect(database) as other:
        other.execute("SELECT FROM outbox_document WHERE key = ANY(%s) FOR UPDATE", [[*keys]])
        yield
        other.rollback()


@contextmanager
def away(database: str) -> Iterator[None]:
    """The relay loses its connection and gets no other. The writers keep theirs."""
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as server:
        server.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS false")
        server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'outbox relay' AND datname = %s",
            [database],
        )
        try:
            yield
        finally:
            server.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS true")
