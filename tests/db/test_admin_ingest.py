"""The pages of the ledger and of the quarantine: read-only, for logins that may see them."""

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client

from history.common import clock
from history.kinds.entities import ENTITIES
from history.store.quarantine_reasons import REASONS
from ingest.consumer.positions import Breaker, Tolerance
from ingest.messages.decode import Reason
from ingest.models import Ledger, Quarantined
from tests.db.ingest_rows import create_ledger_row, create_quarantined
from tests.db.screens import read_text

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
TOPIC = "top-storage.export.product-instance"


@pytest.fixture
def bad_message(db: None) -> Quarantined:
    """Store a halted topic partition, and a bad message of it in quarantine."""
    create_ledger_row(
        partition=2,
        next_offset=12345,
        read=12345,
        stored=12000,
        repeated=344,
        quarantined=1,
        high_watermark=12400,
        checked_at=NOW,
        halted_at=NOW,
        halted_why="too many bad messages",
    )
    secret = b'{"secret": "\xff\x00<script>"}'
    return create_quarantined(
        partition=2, key=b"K1", value=secret, reason="not_json", detail="line 1"
    )


def log_in_operator(client: Client, name: str) -> Client:
    client.force_login(User.objects.get(username=name))
    return client


def test_completeness_page_shows_the_ledger_to_operators(
    bad_message: Quarantined, client: Client
) -> None:
    ops = log_in_operator(client, "ops")
    assert "/admin/completeness/" in ops.get("/admin/").content.decode()
    page_text = read_text(ops.get("/admin/completeness/"))
    assert "12 345 12 000 344 0 1 0 0 55" in page_text
    assert "too many bad messages" in page_text
    for page in ("completeness", "quarantine", "days", "gaps"):
        assert "No consumer reads messages at the moment" in read_text(ops.get(f"/admin/{page}/"))
    now = clock.now()
    Ledger.objects.update(checked_at=now, end_known_at=now - timedelta(minutes=2))
    assert "Kafka does not answer at the moment" in read_text(ops.get("/admin/completeness/"))


@pytest.mark.parametrize(
    ("tolerance", "expected_text"),
    [
        (Tolerance(2, 1, 100), "2 bad messages in a row"),
        (Tolerance(100, 0.5, 4), "2 of the last 4 messages are bad"),
    ],
)
def test_halt_reason_is_in_language_of_page(
    tolerance: Tolerance, expected_text: str, bad_message: Quarantined, client: Client
) -> None:
    breaker = Breaker(tolerance)
    for bad in (False, False, True, True):
        breaker.note(bad)
    explanation = breaker.explain_trip()
    assert explanation is not None
    Ledger.objects.update(halted_why=explanation.english, halted_explanation=explanation.to_json())
    assert expected_text in read_text(log_in_operator(client, "ops").get("/admin/completeness/"))


def test_quarantine_page_finds_messages_by_document_id(
    bad_message: Quarantined, client: Client
) -> None:
    ops = log_in_operator(client, "ops")
    assert "K-1" not in read_text(ops.get("/admin/ingest/quarantined/"))
    Quarantined.objects.update(entity="task", entity_id="K-1", version=7)
    for address in ("?q=K-1", f"{bad_message.pk}/change/"):
        assert "task K-1 version 7" in read_text(ops.get(f"/admin/ingest/quarantined/{address}"))
    assert "K-1 version" not in read_text(ops.get("/admin/ingest/quarantined/?q=K-2"))


def test_quarantine_page_explains_reasons_in_words(
    bad_message: Quarantined, client: Client
) -> None:
    ops = log_in_operator(client, "ops")
    shown_text = read_text(ops.get("/admin/ingest/quarantined/"))
    assert "not JSON (not_json)" in shown_text
    assert "In total: 1" in shown_text
    assert "to change" not in shown_text
    assert {item.value for item in Reason} == REASONS.keys()
    address = f"/admin/ingest/quarantined/{bad_message.pk}/change/"
    Quarantined.objects.update(first_reason="in_the_future", first_detail="after the last day")
    assert f"{REASONS['in_the_future']} (in_the_future): after the last day" in read_text(
        ops.get(address)
    )
    for days, waits in ((-1, True), (1, False)):
        Quarantined.objects.filter(pk=bad_message.pk).update(
            next_attempt=clock.now() + timedelta(days=days)
        )
        assert ("waits for annals quarantine retry" in read_text(ops.get(address))) is waits


def test_message_content_is_not_on_screens(bad_message: Quarantined, client: Client) -> None:
    User.objects.filter(username="admin").update(is_superuser=True)
    for name in ("ops", "admin"):
        page = read_text(
            log_in_operator(client, name).get(f"/admin/ingest/quarantined/{bad_message.pk}/change/")
        )
        assert "line 1" in page
        assert "secret" not in page
        assert f"annals quarantine show {bad_message.pk}" in page


def test_completeness_page_says_that_ledger_is_empty(db: None, client: Client) -> None:
    page = log_in_operator(client, "ops").get("/admin/completeness/")
    assert page.status_code == 200
    assert "<table" not in page.content.decode()


def test_completeness_page_shows_faulty_partitions_first(
    bad_message: Quarantined, client: Client
) -> None:
    now = datetime.now(UTC)
    for number, end in ((3, 10), (4, 11)):
        create_ledger_row(partition=number, high_watermark=end, end_known_at=now)
    Ledger.objects.update(checked_at=now)
    ops = log_in_operator(client, "ops")
    wrong, right = read_text(ops.get("/admin/completeness/")).split(
        "1 partition is read to its end"
    )
    assert [f"{TOPIC}[{number}]" in wrong for number in (2, 3, 4)] == [True, False, True]
    assert f"{TOPIC}[3]" in right
    assert "All is well" not in wrong
    old = now - timedelta(minutes=9)
    Ledger.objects.filter(partition=3).update(checked_at=old)
    assert "read to its end" not in read_text(ops.get("/admin/completeness/"))
    Ledger.objects.update(checked_at=old)
    none_reads = read_text(ops.get("/admin/completeness/"))
    assert "Partitions that were read to their end when last checked: 1" in none_reads
    Ledger.objects.filter(partition=3).update(stored=9, checked_at=now)
    faulty = read_text(ops.get("/admin/completeness/"))
    assert ("10 read, but" in faulty, "read to its end" in faulty) == (True, False)
    Ledger.objects.all().delete()
    for topic in (topic for entity in ENTITIES for topic in entity.topics):
        create_ledger_row(topic=topic, end_known_at=now)
    well = read_text(ops.get("/admin/completeness/"))
    assert "All is well: every message was read and is accounted for. Everything up to" in well
