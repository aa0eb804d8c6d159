"""The ledger and the quarantine on screen: to be read, by those who may, and nothing more."""

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client

from history.base import clock
from history.entities import ENTITIES
from history.reasons import REASONS
from ingest.consumer.positions import Breaker, Tolerance
from ingest.models import Ledger, Quarantined
from ingest.source.decode import Reason
from tests.db.noted import held, ledger_row
from tests.db.screens import text

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
TOPIC = "top-storage.export.product-instance"


@pytest.fixture
def kept(db: None) -> Quarantined:
    """A partition that stands halted, and one bad message."""
    ledger_row(
        partition=2, next_offset=12345, read=12345, stored=12000, repeated=344, quarantined=1,
        high_watermark=12400, checked_at=NOW, halted_at=NOW, halted_why="too many bad messages",
    )  # fmt: skip
    secret = b'{"secret": "\xff\x00<script>"}'
    return held(partition=2, key=b"K1", value=secret, reason="not_json", detail="line 1")


def login(client: Client, name: str) -> Client:
    client.force_login(User.objects.get(username=name))
    return client


def test_operators_read_the_ledger(kept: Quarantined, client: Client) -> None:
    ops = login(client, "ops")
    assert "/admin/completeness/" in ops.get("/admin/").content.decode()
    said = text(ops.get("/admin/completeness/"))
    assert "12 345 12 000 344 0 1 0 0 55" in said
    assert "too many bad messages" in said
    for page in ("completeness", "quarantine", "days", "gaps"):
        assert "Annals сейчас не получает" in text(ops.get(f"/admin/{page}/"))
    now = clock.now()
    Ledger.objects.update(checked_at=now, end_known_at=now - timedelta(minutes=2))
    assert "Kafka сейчас не отвечает" in text(ops.get("/admin/completeness/"))


@pytest.mark.parametrize(
    ("why", "said"),
    [
        (Tolerance(2, 1, 100), "плохих сообщений подряд: 2"),
        (Tolerance(100, 0.5, 4), "плохих сообщений среди последних 4: 2"),
    ],
)
def test_why_reading_stopped_is_said_in_the_language_of_the_page(
    why: Tolerance, said: str, kept: Quarantined, client: Client
) -> None:
    breaker = Breaker(why)
    for bad in (False, False, True, True):
        breaker.note(bad)
    Ledger.objects.update(halted_why=breaker.explain_trip())
    assert said in text(login(client, "ops").get("/admin/completeness/"))


def test_a_message_is_found_by_its_document(kept: Quarantined, client: Client) -> None:
    ops = login(client, "ops")
    assert "K-1" not in text(ops.get("/admin/ingest/quarantined/"))
    Quarantined.objects.update(entity="task", entity_id="K-1", version=7)
    for address in ("?q=K-1", f"{kept.pk}/change/"):
        assert "task K-1 версия 7" in text(ops.get(f"/admin/ingest/quarantined/{address}"))
    assert "K-1 версия" not in text(ops.get("/admin/ingest/quarantined/?q=K-2"))


def test_the_quarantine_is_in_words(kept: Quarantined, client: Client) -> None:
    ops = login(client, "ops")
    shown = text(ops.get("/admin/ingest/quarantined/"))
    assert "не JSON (not_json)" in shown
    assert "Всего: 1" in shown
    assert "Выберите" not in shown
    assert {each.value for each in Reason} == REASONS.keys()
    address = f"/admin/ingest/quarantined/{kept.pk}/change/"
    Quarantined.objects.update(first_reason="in_the_future", first_detail="after the last day")
    assert f"{REASONS['in_the_future']} (in_the_future): after the last day" in text(
        ops.get(address)
    )
    for days, said in ((-1, True), (1, False)):
        Quarantined.objects.filter(pk=kept.pk).update(
            next_attempt=clock.now() + timedelta(days=days)
        )
        assert ("ждёт запуска annals quarantine retry" in text(ops.get(address))) is said


def test_nobody_sees_the_message_and_the_page_says_who_does(
    kept: Quarantined, client: Client
) -> None:
    User.objects.filter(username="admin").update(is_superuser=True)
    for name in ("ops", "admin"):
        page = text(login(client, name).get(f"/admin/ingest/quarantined/{kept.pk}/change/"))
        assert "line 1" in page
        assert "secret" not in page
        assert f"annals quarantine show {kept.pk}" in page


def test_an_empty_ledger_says_so(db: None, client: Client) -> None:
    page = login(client, "ops").get("/admin/completeness/")
    assert page.status_code == 200
    assert "<table" not in page.content.decode()


def test_what_is_wrong_comes_first_and_the_rest_is_folded(
    kept: Quarantined, client: Client
) -> None:
    now = datetime.now(UTC)
    for number, end in ((3, 10), (4, 11)):
        ledger_row(partition=number, high_watermark=end, end_known_at=now)
    Ledger.objects.update(checked_at=now)
    ops = login(client, "ops")
    wrong, right = text(ops.get("/admin/completeness/")).split("1 раздел прочитан до конца")
    assert [f"{TOPIC}[{number}]" in wrong for number in (2, 3, 4)] == [True, False, True]
    assert f"{TOPIC}[3]" in right
    assert "Всё хорошо" not in wrong
    old = now - timedelta(minutes=9)
    Ledger.objects.filter(partition=3).update(checked_at=old)
    assert "прочитан до конца" not in text(ops.get("/admin/completeness/"))
    Ledger.objects.update(checked_at=old)
    none_reads = text(ops.get("/admin/completeness/"))
    assert "При последней проверке до конца прочитано разделов: 1" in none_reads
    Ledger.objects.filter(partition=3).update(stored=9, checked_at=now)
    faulty = text(ops.get("/admin/completeness/"))
    assert ("прочитано 10, а" in faulty, "прочитан до конца" in faulty) == (True, False)
    Ledger.objects.all().delete()
    for topic in (each for entity in ENTITIES for each in entity.topics):
        ledger_row(topic=topic, end_known_at=now)
    well = text(ops.get("/admin/completeness/"))
    assert "Всё хорошо: каждое сообщение прочитано и учтено. Здесь всё, что отправлено до" in well
