"""Relays are killed, frozen or cut off. The versions of each document still arrive, in order.

`python -m tests.outbox.faults --kills 25` is a long form of the first test.
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
from annals.embedded.broker import EmbeddedBroker
from outbox.models import Document
from outbox.recording.writer import Change
from tests.apache.broker import Apache
from tests.kafka import brokers
from tests.outbox import processes, relays
from tests.outbox.load import WriteLoad, kill_relays_under_load
from tests.outbox.relays import TOPIC

pytestmark = pytest.mark.kafka


def test_killed_relays_lose_no_version_and_keep_the_order(
    service: str, database_name: str, embedded: EmbeddedBroker, tmp_path: Path
) -> None:
    brokers.create_topics(embedded, [TOPIC])
    assert kill_relays_under_load(embedded, database_name, tmp_path / "log", times=4, seed=1) > 100


def test_relay_that_was_frozen_sends_nothing_new_when_it_wakes(
    service: str, database_name: str, embedded: EmbeddedBroker, tmp_path: Path
) -> None:
    """While a relay is frozen, other relays take over its buckets. When the frozen relay wakes, it
    notices this and joins again."""
    brokers.create_topics(embedded, [TOPIC])
    load = WriteLoad(documents=50, seed=2)
    log = tmp_path / "log"
    started = [relays.start_relay(embedded, database_name, log) for _ in range(2)]
    with processes.kill_at_end(started) as [frozen, second_relay]:
        relays.wait_until(lambda: relays.list_shares() == [32, 32])
        with load.run_writers():
            relays.wait_until(lambda: load.recorded > 200)
            frozen.send_signal(signal.SIGSTOP)
            relays.wait_until(lambda: relays.list_shares() == [64])
            relays.wait_until(lambda: not relays.count_waiting() or load.recorded > 1_000)
            frozen.send_signal(signal.SIGCONT)
            relays.wait_until(lambda: relays.list_shares() == [32, 32])
        relays.wait_until(lambda: not relays.count_waiting())
        frozen.send_signal(signal.SIGTERM)
        second_relay.send_signal(signal.SIGTERM)
        assert [frozen.wait(120), second_relay.wait(120)] == [0, 0]
    relays.check_sent(relays.read_sent(embedded), load.newest)
    assert "other relays took over" in (tmp_path / "log").read_text()


def test_relay_sends_nothing_twice_after_a_database_outage(
    service: str, database_name: str, embedded: EmbeddedBroker
) -> None:
    """The relay keeps its buckets. It does not send again what Kafka confirmed during the
    outage."""
    brokers.create_topics(embedded, [TOPIC])
    load = WriteLoad(documents=20, seed=3)
    with relays.run_relay(embedded), load.run_writers():
        for _ in range(4):
            earlier = load.recorded
            relays.wait_until(lambda earlier=earlier: load.recorded > earlier + 100)  # type: ignore[misc]
            with refuse_connections(database_name):
                earlier = load.recorded
                relays.wait_until(lambda earlier=earlier: load.recorded > earlier + 20)  # type: ignore[misc]
        load.stop()
        relays.wait_until(lambda: not relays.count_waiting())
    assert relays.check_sent(relays.read_sent(embedded), load.newest) == 0


def test_broker_outage_does_not_count_as_failure_of_documents(service: str, apache: Apache) -> None:
    """No attempt is counted for any document. The relay continues when the broker is back."""
    brokers.create_topics(apache, [TOPIC])
    load = WriteLoad(documents=20, seed=4)
    with relays.run_relay(apache, LEASE_SECONDS=relays.LEASE), load.run_writers():
        relays.wait_until(lambda: load.recorded > 100)
        apache.kill()
        earlier = load.recorded
        relays.wait_until(lambda: load.recorded > earlier + 100)
        relays.wait_until(
            lambda: relays.select_rows("SELECT FROM outbox_relay WHERE last_error <> ''")
        )
        assert not Document.objects.filter(attempts__gt=0).exists()
        load.stop()
        assert relays.count_waiting()
        apache.start()
        relays.wait_until(lambda: not relays.count_waiting())
    relays.check_sent(relays.read_sent(apache), load.newest)


def test_version_of_locked_document_is_sent_once_and_marked_as_sent_later(
    service: str, embedded: EmbeddedBroker
) -> None:
    """The relay sends a committed version at once. It marks the version as sent when the lock is
    released."""
    brokers.create_topics(embedded, [TOPIC])
    load = WriteLoad(documents=3, seed=5)
    load.record_version("A0")
    with relays.run_relay(embedded):
        relays.wait_until(lambda: not relays.count_waiting())
        with lock_documents(service, "product-instance/A0"):
            load.record_version("A1")
            relays.wait_until(lambda: Document.objects.get(pk="product-instance/A1").sent == 1)
        load.record_version("A0")
        relays.wait_until(lambda: not relays.count_waiting())
    assert relays.check_sent(relays.read_sent(embedded), load.newest) == 0


def test_relay_sends_versions_of_other_documents_while_thousands_of_documents_are_locked(
    service: str, embedded: EmbeddedBroker
) -> None:
    """The relay cannot mark versions of locked documents as sent."""
    brokers.create_topics(embedded, [TOPIC])
    newest_of_locked = {f"A{n}": 1 for n in range(2_500)}
    with transaction.atomic():
        outbox.record_many([Change("product-instance", id, {}) for id in newest_of_locked])
    load = WriteLoad(documents=1, seed=7)
    with relays.run_relay(embedded):
        with lock_documents(service, *(f"product-instance/{id}" for id in newest_of_locked)):
            relays.wait_until(lambda: len(relays.read_sent(embedded)) == len(newest_of_locked))
            load.record_version("B")
            relays.wait_until(lambda: Document.objects.get(pk="product-instance/B").sent == 1)
        relays.wait_until(lambda: not relays.count_waiting())
    assert relays.check_sent(relays.read_sent(embedded), {**newest_of_locked, "B": 1}) == 0


def test_uncommitted_version_is_not_sent(service: str, embedded: EmbeddedBroker) -> None:
    """A version that a different transaction records later and commits earlier is sent first."""
    brokers.create_topics(embedded, [TOPIC])
    load = WriteLoad(documents=2, seed=6)
    is_open, may_commit = threading.Event(), threading.Event()
    writer = threading.Thread(target=load.record_slowly, args=("A0", is_open, may_commit))
    with relays.run_relay(embedded):
        writer.start()
        is_open.wait(120)
        load.record_version("A1")
        relays.wait_until(
            lambda: Document.objects.filter(pk="product-instance/A1", sent=1).exists()
        )
        may_commit.set()
        writer.join()
        relays.wait_until(lambda: Document.objects.get(pk="product-instance/A0").sent == 1)
    assert [message.key for message in relays.read_sent(embedded) if message.key == "A0"] == ["A0"]


@contextmanager
def lock_documents(database: str, *keys: str) -> Iterator[None]:
    with psycopg.connect(database) as other_session:
        other_session.execute(
            "SELECT FROM outbox_document WHERE key = ANY(%s) FOR UPDATE", [[*keys]]
        )
        yield
        other_session.rollback()


@contextmanager
def refuse_connections(database: str) -> Iterator[None]:
    """Cut the relay's database connections and refuse new ones. Writers keep their connections."""
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
