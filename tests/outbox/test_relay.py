"""A relay sends every version, in order, soon, and a bad one stops its document only."""

import secrets
import time
from collections.abc import Sequence
from datetime import timedelta

import psycopg
import pytest
from django.db import connection, connections, transaction
from django.db.models import F

import outbox
from annals.embedded.broker import Daemon
from outbox import database
from outbox.conf import Backoff, Conf
from outbox.models import Document
from outbox.relay.membership import Membership
from outbox.relay.queue import Chain, DueReader, Failure, Outcome
from outbox.relay.sender import Pulse, Sender
from outbox.writer import BUCKETS, Change
from tests.kafka import brokers
from tests.outbox import relays, settings, stored
from tests.outbox.relays import TOPIC

KIND = "product-instance"
pytestmark = pytest.mark.kafka


@pytest.fixture
def topic(broker: Daemon) -> str:
    [name] = brokers.create(broker, [TOPIC])
    return name


def record(id: str, **data: object) -> None:
    with transaction.atomic():
        outbox.record(KIND, id, data)


def test_versions_arrive_in_order_each_once(service: str, broker: Daemon, topic: str) -> None:
    for n in range(30):
        with transaction.atomic():
            outbox.record_many([Change(KIND, f"A{id}", {"n": n}) for id in range(40)])
    with relays.thread(broker):
        relays.until(lambda: not relays.waiting())
    found = relays.sent(broker)
    assert relays.check(found, {f"A{id}": 30 for id in range(40)}) == 0
    values = {each.idempotency_key: each.value for each in found}
    assert values == {
        version.idempotency_key.decode(): version.value() for version in stored.versions()
    }
    assert not relays.rows("SELECT FROM outbox_relay")
    assert not relays.rows("SELECT FROM outbox_bucket WHERE owner IS NOT NULL")


def test_a_relay_that_sleeps_is_woken_by_a_commit(service: str, broker: Daemon, topic: str) -> None:
    """Without the notification the version would wait for the next beat, two minutes away."""
    with relays.thread(broker, LEASE_SECONDS=600):
        for n in range(5):
            record("A0", n=n)
            relays.until(lambda: not relays.waiting())
    assert relays.check(relays.sent(broker), {"A0": 5}) == 0


def test_a_poison_message_stops_its_document_only(service: str, apache: Daemon) -> None:
    # Only Kafka itself has this limit.
    brokers.create(apache, [TOPIC], settings={"max.message.bytes": "10000"})
    poison = "".join(chr(0x4E00 + n) for n in range(4_000))
    changes = [Change(KIND, f"A{n}", {"n": n}) for n in range(50)]
    with transaction.atomic():
        outbox.record_many([*changes[:25], Change(KIND, "BAD", {"x": poison}), *changes[25:]])
    record("BAD", fine=True)
    retry = {"RETRY_FIRST_SECONDS": 0.05, "RETRY_MOST_SECONDS": 0.2}
    with relays.thread(apache, **retry):
        relays.until(lambda: relays.waiting() == 1)
        relays.until(lambda: Document.objects.get(pk=f"{KIND}/BAD").attempts > 2)
        record("A0", later=True)
        relays.until(lambda: relays.waiting() == 1)
        bad = Document.objects.get(pk=f"{KIND}/BAD")
        assert (bad.sent, bad.version) == (0, 2)
        assert "MSG_SIZE_TOO_LARGE" in bad.last_error
        assert bad.next_attempt_at is not None
    expected = {f"A{n}": 1 for n in range(50)} | {"A0": 2}
    assert relays.check(relays.sent(apache), expected) == 0
    assert not Document.objects.exclude(pk=f"{KIND}/BAD").filter(attempts__gt=0).exists()


def test_bad_messages_hold_no_others_of_their_batch_back(service: str, apache: Daemon) -> None:
    """Kafka refuses a batch as a whole. The others are sent at once, not after a pause."""
    brokers.create(apache, [TOPIC], partitions=1, settings={"max.message.bytes": "10000"})
    poison = "".join(chr(0x4E00 + n) for n in range(4_000))
    changes = [Change(KIND, f"A{n}", {"n": n}) for n in range(300)]
    for place in (0, 123, 250):
        changes[place] = Change(KIND, f"BAD{place}", {"x": poison})
    changes[200] = Change(KIND, "HUGE", {"x": "x" * 2_000_000})
    with transaction.atomic():
        outbox.record_many(changes)
    with relays.thread(apache, RETRY_FIRST_SECONDS=600, RETRY_MOST_SECONDS=600):
        relays.until(lambda: relays.waiting() == 4)
    good = {change.id: 1 for change in changes if change.id.startswith("A")}
    assert relays.check(relays.sent(apache), good) == 0
    failed = Document.objects.filter(attempts=1, last_error__startswith="MSG_SIZE_TOO_LARGE")
    assert {each.key for each in failed} == {
        f"{KIND}/{id}" for id in ("BAD0", "BAD123", "BAD250", "HUGE")
    }


def test_a_missing_topic_stops_its_entity_only(service: str, apache: Daemon) -> None:
    brokers.create(apache, [TOPIC])
    with transaction.atomic():
        outbox.record("product-task", "T1", {})
    record("A1")
    with relays.thread(apache, RETRY_FIRST_SECONDS=0.05, RETRY_MOST_SECONDS=0.2):
        relays.until(lambda: Document.objects.get(pk=f"{KIND}/A1").sent == 1)
        relays.until(lambda: Document.objects.get(pk="product-task/T1").attempts > 0)
        assert "UNKNOWN_TOPIC" in Document.objects.get(pk="product-task/T1").last_error
        brokers.create(apache, ["top-storage.export.product-task"])
        relays.until(lambda: not relays.waiting())


class Deaf(Sender):
    """A Kafka in which the partitions of one topic have no leader. The broker of the tests is one
    node, which leads all."""

    def send(self, chains: Sequence[Chain], pulse: Pulse) -> list[Outcome]:
        late = Failure("_MSG_TIMED_OUT", "Message timed out", outage=True, late=True)
        deaf = [each.due for each in chains if each.versions[0].entity == "product-task"]
        rest = [each for each in chains if each.due not in deaf]
        return super().send(rest, pulse) + [
            Outcome(due, due.sent, due.waiting_since, late) for due in deaf
        ]


def test_a_topic_that_takes_nothing_stops_its_entity_only(
    service: str, embedded: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.create(embedded, [TOPIC])
    monkeypatch.setattr("outbox.relay.loop.Sender", Deaf)
    with transaction.atomic():
        outbox.record_many([Change("product-task", f"T{n}", {}) for n in range(40)])
    record("A1")
    with relays.thread(embedded):
        relays.until(lambda: Document.objects.get(pk=f"{KIND}/A1").sent == 1)
        relays.until(lambda: Document.objects.filter(attempts__gt=0).count() == 40)
        record("A2")
        relays.until(lambda: Document.objects.get(pk=f"{KIND}/A2").sent == 1)
    assert relays.check(relays.sent(embedded), {"A1": 1, "A2": 1}) == 0


class Slow(Deaf):
    """It takes a while until a version times out."""

    def send(self, chains: Sequence[Chain], pulse: Pulse) -> list[Outcome]:
        outcomes = super().send(chains, pulse)
        if any(each.failure for each in outcomes):
            time.sleep(0.1)
        return outcomes


def test_what_failed_is_tried_though_new_documents_time_out(
    service: str, embedded: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In each round there is a new one."""

    def another() -> bool:
        """Always true."""
        with transaction.atomic():
            outbox.record("product-task", secrets.token_hex(8), {})
        return True

    brokers.create(embedded, [TOPIC])
    monkeypatch.setattr("outbox.relay.loop.Sender", Slow)
    failed = Document.objects.filter(key__startswith="product-task/", attempts__gt=0)
    with relays.thread(embedded):
        relays.until(lambda: another() and failed.exists())
        with transaction.atomic():
            outbox.record(KIND, "A1", {})
            Document.objects.filter(pk=f"{KIND}/A1").update(
                attempts=1, next_attempt_at=F("recorded_at")
            )
        relays.until(lambda: another() and Document.objects.get(pk=f"{KIND}/A1").sent, 10)


def test_what_times_out_again_is_not_always_the_first_to_be_tried(
    service: str, embedded: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are more of them than are tried in one round."""
    brokers.create(embedded, [TOPIC])
    monkeypatch.setattr("outbox.relay.loop.Sender", Slow)
    with transaction.atomic():
        outbox.record_many([Change("product-task", f"T{n}", {}) for n in range(300)])
        outbox.record(KIND, "A1", {})
    Document.objects.update(attempts=1, next_attempt_at=F("recorded_at") - timedelta(hours=1))
    Document.objects.filter(pk=f"{KIND}/A1").update(next_attempt_at=F("recorded_at"))
    with relays.thread(embedded, RETRY_FIRST_SECONDS=60):
        relays.until(lambda: Document.objects.get(pk=f"{KIND}/A1").sent, 10)


def test_whether_kafka_answers(embedded: Daemon) -> None:
    given = {**settings.OUTBOX, "KAFKA": embedded.client()}
    assert Sender(Conf.read(given)).answers()
    assert not Sender(Conf.read({**given, "KAFKA": {"bootstrap.servers": "127.0.0.1:1"}})).answers()


def test_what_failed_keeps_nothing_new_waiting(service: str) -> None:
    with transaction.atomic():
        outbox.record_many([Change(KIND, f"A{n}", {}) for n in range(500)])
    Document.objects.update(attempts=1, next_attempt_at=F("recorded_at"))
    record("NEW")
    with database.connect("default") as own:
        found = DueReader().due(own, range(BUCKETS), {})
        assert f"{KIND}/NEW" in {each.document for each in found}
        assert len(found) > 1
        rest = DueReader().due(own, range(BUCKETS), {}, retries=False)
        assert [each.document for each in rest] == [f"{KIND}/NEW"]


def test_a_relay_that_is_stopped_waits_for_a_writer(service: str, embedded: Daemon) -> None:
    """Otherwise the next relay would send again what this one could not mark."""
    brokers.create(embedded, [TOPIC])
    record("A1")
    with psycopg.connect(service) as other:
        other.execute("SELECT FROM outbox_document FOR UPDATE")
        with relays.thread(embedded) as relay:
            relays.until(lambda: relays.sent(embedded))
            relay.stop.set()
            time.sleep(0.2)
            other.rollback()
    assert relays.waiting() == 0


def test_a_version_that_is_gone_stops_its_document(
    service: str, broker: Daemon, topic: str
) -> None:
    record("A1", n=1)
    record("A1", n=2)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM outbox_message WHERE version = 1")
    with relays.thread(broker):
        relays.until(lambda: Document.objects.get(pk=f"{KIND}/A1").attempts > 0)
    assert "version 1 is not in outbox_message" in Document.objects.get().last_error
    assert relays.sent(broker) == []


def test_relays_share_the_buckets(service: str, broker: Daemon, topic: str) -> None:
    with relays.thread(broker):
        with relays.thread(broker), relays.thread(broker):
            relays.until(lambda: relays.shares() == [21, 21, 22])
        relays.until(lambda: relays.shares() == [64])


def test_beats_do_not_put_off_the_look_at_other_relays(service: str) -> None:
    """A relay that is always busy beats only while versions are on their way."""
    member = Membership("busy", lease=1.0)
    with database.connect("default") as own:
        member.join(own)
        member.balance(own, ())
        assert not member.unbalanced
        time.sleep(0.3)
        member.beat(own, ["product-instance/A1"])
        assert (member.due, member.unbalanced) == (False, True)
        member.leave(own)


def test_large_documents_behind_small_ones_are_not_read_at_once(service: str) -> None:
    """After small documents many are read at a time."""
    with transaction.atomic():
        outbox.record_many([Change(KIND, f"A{n}", {}) for n in range(300)])
    with transaction.atomic():
        outbox.record_many([Change(KIND, f"B{n}", {"x": "x" * 500_000}) for n in range(40)])
    reader = DueReader()
    known: dict[str, int] = {}
    with database.connect("default") as own:
        while due := reader.due(own, range(BUCKETS), known):
            chains = reader.chains(own, due)
            assert not reader.missing
            assert sum(len(one.data) for each in chains for one in each.versions) < 5_000_000
            known |= {each.due.document: 1 for each in chains}
    assert len(known) == 340


def test_a_clock_that_goes_back_delays_no_retry(service: str, embedded: Daemon) -> None:
    brokers.create(embedded, [TOPIC])
    record("A1")
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE outbox_document SET attempts = 1, last_error = 'x',"
            " next_attempt_at = clock_timestamp() + interval '1 day'"
        )
    with relays.thread(embedded, RETRY_FIRST_SECONDS=0.05, RETRY_MOST_SECONDS=0.2):
        relays.until(lambda: not relays.waiting())
    assert (Document.objects.get().attempts, Document.objects.get().last_error) == (0, "")


def test_backoff_doubles_to_a_limit_with_jitter() -> None:
    backoff = Backoff(1.0, 10.0)
    for attempts, longest in ((1, 1.0), (2, 2.0), (4, 8.0), (5, 10.0), (10_000, 10.0)):
        pauses = {backoff.pause(attempts) for _ in range(50)}
        assert len(pauses) > 1
        assert all(longest / 2 <= pause <= longest for pause in pauses)


def test_a_relay_takes_the_role_that_django_takes(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = connections["default"].settings_dict["OPTIONS"]
    monkeypatch.setitem(options, "assume_role", "pg_monitor")
    with database.connect("default") as own:
        assert own.execute("SELECT current_user").fetchone() == ("pg_monitor",)
