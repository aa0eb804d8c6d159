"""What was counted, on the screen of operators and by consumers."""

from datetime import date

import pytest
from django.contrib.auth.models import User
from django.test import Client

from history.models import DayShare
from ingest import metrics
from ingest.consumer import totals
from ingest.store.batch import Batch, Limits
from ingest.store.transaction import Written
from tests.db.screens import text
from tests.messages import SOURCE, WINDOW, message, value

pytestmark = pytest.mark.django_db
FIRST, LAST = date(2026, 3, 27), date(2026, 3, 28)
TABLE = "product_instance_aud"


def put(day: date, client: str, versions: float, nothing: float) -> None:
    """1,000 bytes a version."""
    DayShare.objects.create(
        table=TABLE, day=day, client_id=client, total=False, sampled=versions,
        all=[versions, versions * 1_000], nothing=[nothing, nothing * 1_000], technical=[0, 0],
    )  # fmt: skip


@pytest.fixture
def recorded() -> None:
    for day in (FIRST, LAST):
        put(day, "crm", 100, 25)
        put(day, "<robot>", 300, 150)


@pytest.fixture
def ops() -> Client:
    """In English."""
    client = Client()
    client.force_login(User.objects.get(username="ops"))
    client.cookies["django_language"] = "en"
    return client


def test_the_screen(recorded: None, ops: Client) -> None:
    assert "/admin/share/" in ops.get("/admin/").content.decode()
    shown = text(ops.get("/admin/share/"))
    assert "&lt;robot&gt; 600 75.0% 585.9 KiB 50.0% 0.0%" in shown
    assert shown.index("&lt;robot&gt;") < shown.index("crm")
    assert "2 days, March 27, 2026 to March 28, 2026." in shown
    # 350,000 bytes of two days, for 90 days and today.
    assert "90 days would need 15.2 MiB less" in shown


def test_figures_are_written_as_the_reader_writes_them(recorded: None, ops: Client) -> None:
    del ops.cookies["django_language"]
    shown = text(ops.get("/admin/share/"))
    assert "600 75,0% 585,9 KiB 50,0%" in shown
    assert "27 марта 2026 г." in shown


def test_nothing_is_counted_yet(ops: Client) -> None:
    assert "run annals share once a day" in text(ops.get("/admin/share/"))


def test_the_labels_of_the_consumer_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(totals, "_CLIENTS", set())
    names = [totals._label(f"service {number}") for number in range(60)]
    assert names == [f"service {n}" for n in range(50)] + ["other"] * 10
    assert totals._label("service 7") == "service 7"


def test_the_consumer_counts_by_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(totals, "_CLIENTS", set())
    batch = Batch(Limits(100, 1 << 20))
    for offset, client in enumerate(("crm", "robot", "crm")):
        body = value(id=f"d{offset}", clientId=client)
        batch.add(message(body, offset), SOURCE, offset, WINDOW)

    def counted(client: str) -> float:
        return metrics.CLIENTS.labels(client)._value.get()

    before = counted("crm"), counted("robot")
    totals.Meter().batch_written(batch, Written({SOURCE: 3}, {}))
    assert (counted("crm"), counted("robot")) == (before[0] + 2, before[1] + 1)
