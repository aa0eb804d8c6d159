"""Annals asks a real outbox for what is missing, stores it once, and asks for nothing twice."""

from __future__ import annotations

import base64
import json
import os
import signal
import time
from datetime import datetime, timedelta
from io import StringIO

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client

from annals.access.grants import CONSUMER
from annals.observe import gap_metrics
from history import days
from history.base import clock
from history.entities import BY_NAME, ROOT
from history.gap_models import GapAnswer, GapDay, GapDocument, GapSource, VersionGap
from history.seals import late
from history.seals.seal import seal
from ingest.source.message import Message
from ingest.store.session import connect
from tests.db.as_role import logged_in
from tests.db.healed import (
    CHILD,
    Healed,
    Outbox,
    closed,
    find,
    healed,
    noted,
    open_gaps,
    shop,
)
from tests.db.ingested import CHILD_SOURCE, faults, query, rows
from tests.db.test_fallback import use
from tests.db.test_fallback_hostile import says
from tests.messages import value
from tests.old_service import OldService

__all__ = ["healed", "shop"]

pytestmark = pytest.mark.django_db
BASIC = f"Basic {base64.b64encode(b'support:support').decode()}"
MINUTE = timedelta(minutes=1)
LAST = b'{"gone": [], "waiting": [], "unrecorded": [], "next": null}'


@pytest.fixture(autouse=True)
def _django_db_marker() -> None:
    """In place of pytest-django's, which begins a transaction: the mark only has a database made.
    What is committed counts here."""


def figures() -> dict[str, int]:
    """What GET completeness and the page "Completeness" say of gaps."""
    reader = Client()
    reader.force_login(User.objects.get(username="admin"))
    found = dict(reader.get("/api/v1/completeness").json()["data"]["gaps"])
    assert found.pop("lookedAt")
    page = reader.get("/admin/completeness/").content.decode()
    assert (f"Не поступило {found['missing']} версий." in page) == (found["missing"] > 0)
    assert (f"получено {found['recovered']}." in page) == (found["recovered"] > 0)
    return found


def test_what_is_missing_is_asked_for_and_stored_as_kafka_would_have_brought_it(
    healed: Healed, shop: Outbox
) -> None:
    healed.sources(shop.url)
    healed.brings(shop, "A1", 1, 2, 6, 9)
    healed.brings(shop, "A2", *range(1, 11))
    find()
    assert open_gaps() == [("A1", 3, 5), ("A1", 7, 8)]
    assert figures() == {"gaps": 2, "missing": 5, "arrived": 0, "recovered": 0}
    [done] = healed.heal()
    assert (done["documents"], done["asked"], done["recovered"]) == (1, 5, 5)
    assert open_gaps() == []
    assert closed() == [("A1", 3, 5, "recovered"), ("A1", 7, 8, "recovered")]
    assert noted() == [("A1", number, "shop") for number in (3, 4, 5, 7, 8)]
    assert figures() == {"gaps": 0, "missing": 0, "arrived": 0, "recovered": 5}
    stored = {row["version"]: row for row in rows() if row["id"] == "A1"}
    assert sorted(stored) == list(range(1, 10))
    for number in range(1, 10):
        sent = json.loads(shop.values[f"{ROOT.name}/A1", number])
        assert stored[number]["data"] == sent["data"]
        assert f"{stored[number]['updated_at']:%Y-%m-%dT%H:%M:%S.%fZ}" == sent["updatedAt"]
        assert (stored[number]["author"], stored[number]["client_id"]) == ("m.prygunov", "shop")
    assert healed.heal()[0]["documents"] == 0
    assert GapSource.objects.get().asked == 5
    assert GapAnswer.objects.count() == 0
    # Kafka brings one of them after all.
    healed.brings(shop, "A1", 4)
    find()
    assert (open_gaps(), len([row for row in rows() if row["id"] == "A1"])) == ([], 9)
    assert [each for each in faults() if "are there" not in each] == []


def test_a_child_comes_with_its_application(healed: Healed, shop: Outbox) -> None:
    healed.sources(shop.url)
    kind = BY_NAME[CHILD]

    for offset, number in enumerate((1, 4)):
        value = shop.values[f"{CHILD}/T1", number]
        message = Message(CHILD_SOURCE.topic, 0, offset, -1, b"T1", value)
        healed.ingested.write(message, source=CHILD_SOURCE)
    find()
    healed.heal("--entity", ROOT.name)
    assert open_gaps() == [("T1", 2, 3)]
    assert healed.heal("--entity", CHILD)[0]["recovered"] == 2
    assert [row["product_instance_id"] for row in rows(kind)] == ["A1"] * 4


def test_what_the_service_does_not_have_is_remembered_and_asked_for_on_purpose_only(
    healed: Healed, shop: Outbox
) -> None:
    healed.sources(shop.url)
    healed.brings(shop, "A3", 1, 8)
    find()
    kept = "SELECT * FROM outbox_message WHERE document LIKE '%%/A3' AND version IN (3, 4)"
    shop.execute(f"CREATE TABLE kept AS {kept}")
    shop.execute("DELETE FROM outbox_message WHERE document LIKE '%%/A3' AND version IN (3, 4)")
    try:
        [done] = healed.heal()
        assert (done["recovered"], done["unanswerable"], done["asked"]) == (4, 2, 6)
        assert open_gaps() == [("A3", 3, 4)]
        # The gap is another one by now: its halves are found anew.
        VersionGap.objects.all().delete()
        GapDocument.objects.update(judged=None)
        GapDay.objects.all().delete()
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO gap_pending SELECT entity, id FROM gap_document")
        find()
        assert open_gaps() == [("A3", 3, 4)]
        assert healed.heal()[0]["documents"] == 0
        assert healed.heal("--again")[0]["unanswerable"] == 2
    finally:
        shop.execute("INSERT INTO outbox_message SELECT * FROM kept")
        shop.execute("DROP TABLE kept")
    assert healed.heal()[0]["documents"] == 0
    assert healed.heal("--again")[0]["recovered"] == 2
    assert open_gaps() == []
    assert GapSource.objects.get().unanswerable == 4
    assert healed.heal("--again")[0]["documents"] == 0


def test_what_is_not_sent_yet_is_asked_for_later(healed: Healed, shop: Outbox) -> None:
    healed.sources(shop.url)
    healed.brings(shop, "A4", 1, 8)
    find()
    shop.execute("UPDATE outbox_document SET sent = 4 WHERE key LIKE '%%/A4'")
    try:
        [done] = healed.heal()
        assert (done["recovered"], done["waiting"], done["unanswerable"]) == (3, 3, 0)
        assert healed.heal()[0]["documents"] == 0
    finally:
        shop.execute("UPDATE outbox_document SET sent = 10 WHERE key LIKE '%%/A4'")
    GapAnswer.objects.update(next_attempt_at=clock.now())
    assert healed.heal()[0]["recovered"] == 3
    assert open_gaps() == []


def planned(*words: str) -> list[str]:
    """The lines of --dry-run."""
    out = StringIO()
    call_command("gaps", "heal", "--dry-run", *words, stdout=out)
    return out.getvalue().splitlines()


def test_only_what_is_chosen_is_asked_for(healed: Healed, shop: Outbox) -> None:
    healed.sources(shop.url, client_ids=["another"])
    assert planned() == ["Nobody has looked for gaps yet: run annals gaps first."]
    for id in ("A1", "A2", "A3"):
        healed.brings(shop, id, 1, 3)
    find()
    assert healed.heal()[0]["documents"] == 0
    assert "There is nothing to ask for" in planned()[0]
    healed.sources(shop.url, client_ids=["shop"], kinds=[])
    assert planned("--limit", "2") == [f"shop {ROOT.name} {id} 2" for id in ("A1", "A2")]
    assert GapSource.objects.count() == 0
    assert healed.heal("--limit", "2")[0]["documents"] == 2
    assert open_gaps() == [("A3", 2, 2)]
    with pytest.raises(CommandError, match="there are shop"):
        healed.heal("--source", "other")
    assert healed.heal("--source", "shop")[0]["recovered"] == 1


def test_the_consumers_login_is_enough(healed: Healed, shop: Outbox) -> None:
    healed.sources(shop.url)
    healed.brings(shop, "A1", 1, 4)
    find()
    call_command("grants", apply=True, stdout=StringIO())
    with logged_in(CONSUMER, healed.monkeypatch):
        assert healed.heal()[0]["recovered"] == 2
        assert healed.heal()[0]["documents"] == 0
    assert closed() == [("A1", 2, 3, "recovered")]


def old_value(number: int, day: datetime) -> bytes:
    return value(id="A1", version=number, updatedAt=day.isoformat())


def test_a_sealed_day_gets_late_rows_and_a_missing_day_is_made(
    healed: Healed, monkeypatch: pytest.MonkeyPatch
) -> None:
    today = clock.now()
    sealed, absent = today - timedelta(days=5), today - timedelta(days=6)
    healed.ingested.write(old_value(1, sealed - timedelta(hours=1)), old_value(4, sealed))
    find()
    assert open_gaps() == [("A1", 2, 3)]
    with connect("test") as plain:
        seal(plain, ROOT, sealed.date())
    lines = [old_value(2, sealed), old_value(3, absent)]
    with OldService(hostile=says(b"\n".join([*lines, LAST]))) as source:
        healed.sources(source.url)
        assert healed.heal()[0]["recovered"] == 2
    assert [
        (row["row_id"], row["version"], row["partition"])
        for row in query("SELECT * FROM late_row ORDER BY version")
    ] == [("A1", 2, -1)]
    assert noted() == [("A1", 2, "shop"), ("A1", 3, "shop")]
    assert open_gaps() == []


def test_a_version_before_retention_is_refused_and_not_asked_for_again(
    healed: Healed, shop: Outbox
) -> None:
    healed.brings(shop, "A1", 1, 3)
    find()
    too_old = value(id="A1", version=2, updatedAt=(clock.now() - timedelta(days=400)).isoformat())
    with OldService(hostile=says(b"\n".join([too_old, LAST]))) as source:
        healed.sources(source.url)
        [done] = healed.heal()
        assert (done["recovered"], done["refused"]) == (0, 1)
        healed.heal()
        assert len(source.asked) == 1
    assert "older than the days" in GapAnswer.objects.get().detail


def test_a_run_that_is_killed_at_any_moment_loses_and_doubles_nothing(
    healed: Healed, shop: Outbox
) -> None:
    """A process of its own, killed with SIGKILL while it asks and stores: each time a bit later."""
    ids = [f"A{number}" for number in range(1, 10)]
    for id in ids:
        healed.brings(shop, id, 1, 10)
    find()
    healed.sources(shop.url, requests_per_second=40)
    for number in range(10):
        process = run_apart(healed)
        time.sleep(number * 0.015)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        assert len(noted()) == len(rows()) - 2 * len(ids)
        assert len(noted()) % 8 == 0
    healed.heal()
    assert open_gaps() == []
    assert [(row["id"], row["version"]) for row in rows()] == [
        (id, number) for id in ids for number in range(1, 11)
    ]
    assert noted() == [(id, number, "shop") for id in ids for number in range(2, 10)]
    assert GapSource.objects.get().recovered == 8 * len(ids)


def run_apart(healed: Healed) -> int:
    """A run in a process of its own; its number."""
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]  # of psycopg's backend
    process = os.fork()
    if process == 0:
        try:
            healed.heal()
        finally:
            os._exit(0)
    return process


def test_the_old_service_is_asked_last(
    healed: Healed, shop: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OldService() as old:
        use(old, monkeypatch, DATABASE_URL=settings.ANNALS.database_url or "")
        healed.sources(shop.url)
        moment = clock.now() - timedelta(hours=1)
        healed.brings(shop, "A1", 1, 3)
        healed.ingested.write(
            *(
                value(
                    id="B1",
                    version=number,
                    updatedAt=(moment + number * MINUTE).isoformat(),
                )
                for number in (1, 4)
            )
        )
        for number in (1, 3):
            old.add("B1", number, {"rate": "1.10", "n": 10**20}, moment + number * MINUTE)
        find()
        first, last = healed.heal()
        assert (first["source"], first["recovered"], first["unanswerable"]) == ("shop", 1, 2)
        assert (last["source"], last["recovered"], last["unanswerable"]) == ("old-service", 1, 1)
        assert open_gaps() == [("B1", 2, 2)]
        [row] = [row for row in rows() if (row["id"], row["version"]) == ("B1", 3)]
        assert (row["data"], row["author"]) == ({"rate": "1.10", "n": 10**20}, "o.stara")
        assert row["updated_at"] == moment + 3 * MINUTE
        asked = len(old.asked)
        healed.heal()
        assert len(old.asked) == asked
        old.status = 500
        healed.heal("--again", code=1)
    assert noted() == [("A1", 2, "shop"), ("B1", 3, "old-service")]


def test_where_a_version_came_from_is_known_as_long_as_its_day_is_kept(
    healed: Healed, shop: Outbox
) -> None:
    healed.sources(shop.url)
    healed.brings(shop, "A1", 1, 4)
    find()
    healed.heal()
    with connect("test") as plain:
        late.forget(plain)
        assert len(noted()) == 2
        day = rows()[0]["updated_at"].date()
        plain.execute(f"DROP TABLE {days.partition_name(ROOT.table, day)}")
        late.forget(plain)
    assert noted() == []


def test_nobody_to_ask(healed: Healed, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CommandError, match="ANNALS_SOURCES_FILE"):
        healed.heal()


def test_it_is_shown_where_a_version_came_from(healed: Healed, shop: Outbox) -> None:
    healed.sources(shop.url)
    healed.brings(shop, "A5", 1, 3)
    find()
    healed.heal()
    client = Client(headers={"authorization": BASIC})
    [three, two, one] = client.get(f"/api/v1/history/{ROOT.name}/A5").json()["data"]["history"]
    assert ["recovered" in each for each in (three, two, one)] == [False, True, False]
    assert two["recovered"]["from"] == "shop"
    found = client.get(f"/api/v1/trace?entity={ROOT.name}&id=A5&version=2").json()["data"]
    assert (found["state"], found["recoveredFrom"], found["at"]) == (
        "stored",
        "shop",
        two["recovered"]["at"],
    )
    assert "Annals запросил её у shop" in found["why"]
    client.force_login(User.objects.get(username="support"))
    page = client.get(f"/admin/history/{ROOT.name}/A5/")
    assert page.content.decode().count("Annals запросил её у shop") == 1


def test_it_is_shown_what_was_answered(healed: Healed, shop: Outbox) -> None:
    healed.sources(shop.url)
    healed.brings(shop, "A6", 1, 3)
    healed.brings(shop, "A7", 1, 3)
    find()
    shop.execute("CREATE TABLE kept AS SELECT * FROM outbox_message WHERE document LIKE '%%/A6'")
    shop.execute("DELETE FROM outbox_message WHERE document LIKE '%%/A6'")
    try:
        healed.heal()
    finally:
        shop.execute("INSERT INTO outbox_message SELECT * FROM kept")
        shop.execute("DROP TABLE kept")
    out = StringIO()
    call_command("gaps", "list", stdout=out)
    assert "shop no longer has it; asked on 20" in out.getvalue()
    out = StringIO()
    call_command("gaps", "list", "--json", stdout=out)
    [said] = json.loads(out.getvalue())["asked"]
    assert (said["source"], said["gone"], said["refused"]) == ("shop", True, False)
    client = Client()
    client.force_login(User.objects.get(username="ops"))
    page = client.get("/admin/gaps/").content.decode()
    assert "У shop её больше нет, запрос <time" in page
    page = client.get("/admin/gaps/?closed=1").content.decode()
    assert "получено по запросу Annals" in page
    found = {
        (metric.name, sample.labels["source"]): sample.value
        for metric in gap_metrics.gaps()
        for sample in metric.samples
        if "source" in sample.labels
    }
    assert found["annals_gaps_recovered", "shop"] == 1
    assert found["annals_gaps_unanswerable", "shop"] == 1
    assert found["annals_gaps_source_failures", "shop"] == 0
