"""A relay sends every version soon and in order. A bad version delays only its document."""

import secrets
import time
from collections.abc import Sequence
from datetime import timedelta

import psycopg
import pytest
from django.db import connection, connections, transaction
from django.db.models import F

import outbox
from annals.embedded.broker import KafkaServer
from outbox.conf import Backoff, OutboxConf
from outbox.database import sessions
from outbox.models import Document
from outbox.recording.writer import BUCKETS, Change
from outbox.relay.membership import RelayMembership
from outbox.relay.queue import DueReader, SendFailure, SendOutcome, VersionChain
from outbox.relay.sender import KeepSending, VersionSender
from tests.kafka import brokers
from tests.outbox import recorded_versions, relays, settings
from tests.outbox.relays import TOPIC

KIND = "product-instance"
pytestmark = pytest.mark.kafka


@pytest.fixture
def topic(broker: KafkaServer) -> str:
    [name] = brokers.create_topics(broker, [TOPIC])
    return name


def record_version(id: str, **data: object) -> None:
    with transaction.atomic():
        outbox.record(KIND, id, data)


def test_relay_sends_each_version_once_and_in_order(
    service: str, broker: KafkaServer, topic: str
) -> None:
    for n in range(30):
        with transaction.atomic():
            outbox.record_many([Change(KIND, f"A{id}", {"n": n}) for id in range(40)])
    with relays.run_relay(broker):
        relays.wait_until(lambda: not relays.count_waiting())
    messages = relays.read_sent(broker)
    assert relays.check_sent(messages, {f"A{id}": 30 for id in range(40)}) == 0
    values = {message.idempotency_key: message.value for message in messages}
    assert values == {
        version.idempotency_key.decode(): version.encode_value()
        for version in recorded_versions.load_versions()
    }
    assert not relays.select_rows("SELECT FROM outbox_relay")
    assert not relays.select_rows("SELECT FROM outbox_bucket WHERE owner IS NOT NULL")


def test_sleeping_relay_is_woken_by_a_commit(service: str, broker: KafkaServer, topic: str) -> None:
    """Without the notification the version would wait for the next heartbeat, in twenty minutes."""
    with relays.run_relay(broker, LEASE_SECONDS=6_000):
        for n in range(5):
            record_version("A0", n=n)
            relays.wait_until(lambda: not relays.count_waiting())
    assert relays.check_sent(relays.read_sent(broker), {"A0": 5}) == 0


def test_refused_message_stops_only_versions_of_its_document(
    service: str, apache: KafkaServer
) -> None:
    # Only Apache Kafka has this limit.
    brokers.create_topics(apache, [TOPIC], settings={"max.message.bytes": "10000"})
    poison = "".join(chr(0x4E00 + n) for n in range(4_000))
    changes = [Change(KIND, f"A{n}", {"n": n}) for n in range(50)]
    with transaction.atomic():
        outbox.record_many([*changes[:25], Change(KIND, "BAD", {"x": poison}), *changes[25:]])
    record_version("BAD", fine=True)
    retry = {"RETRY_FIRST_SECONDS": 0.05, "RETRY_MOST_SECONDS": 0.2}
    with relays.run_relay(apache, **retry):
        relays.wait_until(lambda: relays.count_waiting() == 1)
        relays.wait_until(lambda: Document.objects.get(pk=f"{KIND}/BAD").attempts > 2)
        record_version("A0", later=True)
        relays.wait_until(lambda: relays.count_waiting() == 1)
        bad = Document.objects.get(pk=f"{KIND}/BAD")
        assert (bad.sent, bad.version) == (0, 2)
        assert "MSG_SIZE_TOO_LARGE" in bad.last_error
        assert bad.next_attempt_at is not None
    expected = {f"A{n}": 1 for n in range(50)} | {"A0": 2}
    assert relays.check_sent(relays.read_sent(apache), expected) == 0
    assert not Document.objects.exclude(pk=f"{KIND}/BAD").filter(attempts__gt=0).exists()


def test_refused_messages_do_not_delay_other_messages_of_the_batch(
    service: str, apache: KafkaServer
) -> None:
    """Kafka refuses a batch as a whole. The relay then sends the good messages at once, without a
    pause."""
    brokers.create_topics(apache, [TOPIC], partitions=1, settings={"max.message.bytes": "10000"})
    poison = "".join(chr(0x4E00 + n) for n in range(4_000))
    changes = [Change(KIND, f"A{n}", {"n": n}) for n in range(300)]
    for index in (0, 123, 250):
        changes[index] = Change(KIND, f"BAD{index}", {"x": poison})
    changes[200] = Change(KIND, "HUGE", {"x": "x" * 2_000_000})
    with transaction.atomic():
        outbox.record_many(changes)
    with relays.run_relay(apache, RETRY_FIRST_SECONDS=600, RETRY_MOST_SECONDS=600):
        relays.wait_until(lambda: relays.count_waiting() == 4)
    good = {change.id: 1 for change in changes if change.id.startswith("A")}
    assert relays.check_sent(relays.read_sent(apache), good) == 0
    failed = Document.objects.filter(attempts=1, last_error__startswith="MSG_SIZE_TOO_LARGE")
    assert {document.key for document in failed} == {
        f"{KIND}/{id}" for id in ("BAD0", "BAD123", "BAD250", "HUGE")
    }


def test_missing_topic_delays_only_versions_of_its_kind(service: str, apache: KafkaServer) -> None:
    brokers.create_topics(apache, [TOPIC])
    with transaction.atomic():
        outbox.record("product-task", "T1", {})
    record_version("A1")
    with relays.run_relay(apache, RETRY_FIRST_SECONDS=0.05, RETRY_MOST_SECONDS=0.2):
        relays.wait_until(lambda: Document.objects.get(pk=f"{KIND}/A1").sent == 1)
        relays.wait_until(lambda: Document.objects.get(pk="product-task/T1").attempts > 0)
        assert "UNKNOWN_TOPIC" in Document.objects.get(pk="product-task/T1").last_error
        brokers.create_topics(apache, ["top-storage.export.product-task"])
        relays.wait_until(lambda: not relays.count_waiting())


class SenderWithoutLeader(VersionSender):
    """A sender that reports timeouts for one topic, as if its topic partitions had no leader.

    The broker of the tests cannot lose a leader: it is a single node, which leads all partitions.
    """

    def send_chains(self, chains: Sequence[VersionChain], pulse: KeepSending) -> list[SendOutcome]:
        failure = SendFailure("_MSG_TIMED_OUT", "Message timed out", outage=True, late=True)
        unanswered = [chain.due for chain in chains if chain.versions[0].entity == "product-task"]
        other_chains = [chain for chain in chains if chain.due not in unanswered]
        return super().send_chains(other_chains, pulse) + [
            SendOutcome(due, due.sent, due.waiting_since, failure) for due in unanswered
        ]


def test_topic_without_leader_delays_only_versions_of_its_kind(
    service: str, embedded: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.create_topics(embedded, [TOPIC])
    monkeypatch.setattr("outbox.relay.loop.VersionSender", SenderWithoutLeader)
    with transaction.atomic():
        outbox.record_many([Change("product-task", f"T{n}", {}) for n in range(40)])
    record_version("A1")
    with relays.run_relay(embedded):
        relays.wait_until(lambda: Document.objects.get(pk=f"{KIND}/A1").sent == 1)
        relays.wait_until(lambda: Document.objects.filter(attempts__gt=0).count() == 40)
        record_version("A2")
        relays.wait_until(lambda: Document.objects.get(pk=f"{KIND}/A2").sent == 1)
    assert relays.check_sent(relays.read_sent(embedded), {"A1": 1, "A2": 1}) == 0


class SlowSenderWithoutLeader(SenderWithoutLeader):
    """A SenderWithoutLeader that reports the timeout of a version only after 0.1 seconds."""

    def send_chains(self, chains: Sequence[VersionChain], pulse: KeepSending) -> list[SendOutcome]:
        outcomes = super().send_chains(chains, pulse)
        if any(outcome.failure for outcome in outcomes):
            time.sleep(0.1)
        return outcomes


def test_failed_document_is_retried_although_new_documents_keep_timing_out(
    service: str, embedded: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:

    def record_new_document() -> bool:
        """Record a version of a new document. Always return True, for use in a condition."""
        with transaction.atomic():
            outbox.record("product-task", secrets.token_hex(8), {})
        return True

    brokers.create_topics(embedded, [TOPIC])
    monkeypatch.setattr("outbox.relay.loop.VersionSender", SlowSenderWithoutLeader)
    failed = Document.objects.filter(key__startswith="product-task/", attempts__gt=0)
    with relays.run_relay(embedded):
        relays.wait_until(lambda: record_new_document() and failed.exists())
        with transaction.atomic():
            outbox.record(KIND, "A1", {})
            Document.objects.filter(pk=f"{KIND}/A1").update(
                attempts=1, next_attempt_at=F("recorded_at")
            )
        relays.wait_until(
            lambda: record_new_document() and Document.objects.get(pk=f"{KIND}/A1").sent, 120
        )


def test_failed_document_is_sent_although_hundreds_of_older_documents_time_out(
    service: str, embedded: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The relay cannot try all of the older documents in one round."""
    brokers.create_topics(embedded, [TOPIC])
    monkeypatch.setattr("outbox.relay.loop.VersionSender", SlowSenderWithoutLeader)
    with transaction.atomic():
        outbox.record_many([Change("product-task", f"T{n}", {}) for n in range(300)])
        outbox.record(KIND, "A1", {})
    Document.objects.update(attempts=1, next_attempt_at=F("recorded_at") - timedelta(hours=1))
    Document.objects.filter(pk=f"{KIND}/A1").update(next_attempt_at=F("recorded_at"))
    with relays.run_relay(embedded, RETRY_FIRST_SECONDS=600, RETRY_MOST_SECONDS=600):
        relays.wait_until(lambda: Document.objects.get(pk=f"{KIND}/A1").sent, 120)


def test_sender_recognises_whether_a_broker_is_reachable(embedded: KafkaServer) -> None:
    setting = {**settings.OUTBOX, "KAFKA": embedded.make_client_config()}
    assert VersionSender(OutboxConf.from_setting(setting)).is_broker_reachable()
    assert not VersionSender(
        OutboxConf.from_setting({**setting, "KAFKA": {"bootstrap.servers": "127.0.0.1:1"}})
    ).is_broker_reachable()


def test_failed_documents_do_not_delay_new_documents(service: str) -> None:
    with transaction.atomic():
        outbox.record_many([Change(KIND, f"A{n}", {}) for n in range(500)])
    Document.objects.update(attempts=1, next_attempt_at=F("recorded_at"))
    record_version("NEW")
    with sessions.connect("default") as session:
        due = DueReader().read_due_documents(session, range(BUCKETS), {})
        assert f"{KIND}/NEW" in {document.document for document in due}
        assert len(due) > 1
        new_documents = DueReader().read_due_documents(session, range(BUCKETS), {}, retries=False)
        assert [document.document for document in new_documents] == [f"{KIND}/NEW"]


def test_stopping_relay_waits_for_locked_document_and_then_marks_version_as_sent(
    service: str, embedded: KafkaServer
) -> None:
    """Otherwise the next relay would send the version again."""
    brokers.create_topics(embedded, [TOPIC])
    record_version("A1")
    with psycopg.connect(service) as other_session:
        other_session.execute("SELECT FROM outbox_document FOR UPDATE")
        with relays.run_relay(embedded) as relay:
            relays.wait_until(lambda: relays.read_sent(embedded))
            relay.stop.set()
            time.sleep(0.2)
            other_session.rollback()
    assert relays.count_waiting() == 0


def test_document_is_not_sent_when_one_of_its_unsent_versions_is_missing(
    service: str, broker: KafkaServer, topic: str
) -> None:
    record_version("A1", n=1)
    record_version("A1", n=2)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM outbox_message WHERE version = 1")
    with relays.run_relay(broker):
        relays.wait_until(lambda: Document.objects.get(pk=f"{KIND}/A1").attempts > 0)
    assert "version 1 is not in outbox_message" in Document.objects.get().last_error
    assert relays.read_sent(broker) == []


def test_relays_share_buckets_and_take_over_the_buckets_of_a_relay_that_ends(
    service: str, broker: KafkaServer, topic: str
) -> None:
    with relays.run_relay(broker):
        with relays.run_relay(broker), relays.run_relay(broker):
            relays.wait_until(lambda: relays.list_shares() == [21, 21, 22])
        relays.wait_until(lambda: relays.list_shares() == [64])


def test_heartbeats_of_busy_relay_do_not_delay_balancing_of_buckets_among_relays(
    service: str,
) -> None:
    """A busy relay writes heartbeats while it sends versions. After such a heartbeat, the
    balancing must still be due."""
    member = RelayMembership("busy", lease=1.0)
    with sessions.connect("default") as session:
        member.join_relays(session)
        member.balance_buckets(session, ())
        assert not member.is_balancing_due
        time.sleep(0.3)
        member.write_beat(session, ["product-instance/A1"])
        assert (member.is_beat_due, member.is_balancing_due) == (False, True)
        member.leave_relays(session)


def test_relay_reads_fewer_documents_at_a_time_when_they_become_large(service: str) -> None:
    """As long as documents are small, the relay reads many at a time."""
    with transaction.atomic():
        outbox.record_many([Change(KIND, f"A{n}", {}) for n in range(300)])
    with transaction.atomic():
        outbox.record_many([Change(KIND, f"B{n}", {"x": "x" * 500_000}) for n in range(40)])
    reader = DueReader()
    sent: dict[str, int] = {}
    with sessions.connect("default") as session:
        while due := reader.read_due_documents(session, range(BUCKETS), sent):
            chains = reader.read_chains(session, due)
            assert not reader.missing
            assert (
                sum(len(version.data) for chain in chains for version in chain.versions) < 5_000_000
            )
            sent |= {chain.due.document: 1 for chain in chains}
    assert len(sent) == 340


def test_retry_of_a_document_is_not_delayed_when_the_clock_goes_back(
    service: str, embedded: KafkaServer
) -> None:
    brokers.create_topics(embedded, [TOPIC])
    record_version("A1")
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE outbox_document SET attempts = 1, last_error = 'x',"
            " next_attempt_at = clock_timestamp() + interval '1 day'"
        )
    with relays.run_relay(embedded, RETRY_FIRST_SECONDS=0.05, RETRY_MOST_SECONDS=0.2):
        relays.wait_until(lambda: not relays.count_waiting())
    assert (Document.objects.get().attempts, Document.objects.get().last_error) == (0, "")


def test_pause_between_attempts_doubles_up_to_a_limit_with_jitter() -> None:
    backoff = Backoff(1.0, 10.0)
    for attempts, longest in ((1, 1.0), (2, 2.0), (4, 8.0), (5, 10.0), (10_000, 10.0)):
        pauses = {backoff.choose_pause(attempts) for _ in range(50)}
        assert len(pauses) > 1
        assert all(longest / 2 <= pause <= longest for pause in pauses)


def test_relay_connects_with_the_database_role_that_django_assumes(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = connections["default"].settings_dict["OPTIONS"]
    monkeypatch.setitem(options, "assume_role", "pg_monitor")
    with sessions.connect("default") as session:
        assert session.execute("SELECT current_user").fetchone() == ("pg_monitor",)
