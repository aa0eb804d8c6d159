"""The page of days shows the state of each day, why a day is held, and the next step of a day."""

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.utils import translation
from pytest_django import Settings

from annals.access.grants import WEB
from annals.configuration import env
from annals.operations.days import STATES, TableDay
from history.common import clock
from history.kinds.entities import BY_TABLE
from history.models import ArchivedDay, DaySeal, SealedDay, VerifiedTable
from history.retention.catalog import Partition
from history.store.days import days
from history.store.days.days import DayState
from ingest.messages.explanations import Code, Explanation
from ingest.messages.translation import translate_all, translate_stored
from ingest.models import RetiredTopic
from tests.db import ingest_rows
from tests.db.partitioned import TABLE, connect_plainly
from tests.db.screens import read_text
from tests.messages import get_today

OTHER_TABLE = "product_task_aud"


def make_partition(state: DayState = DayState.ATTACHED) -> Partition:
    return Partition(TABLE, "p", None, None, state, True, 5, 2048)


def test_calendar_has_one_word_for_each_state_of_a_day() -> None:
    old, archived = get_today() - timedelta(days=3), ArchivedDay(table=TABLE, day=get_today())
    actual = [
        TableDay(TABLE, old, get_today()),
        TableDay(TABLE, old, get_today(), make_partition(DayState.DETACHED)),
        TableDay(TABLE, old, get_today(), make_partition(), hold_reason="x", sealed=clock.now()),
        TableDay(TABLE, old, get_today(), make_partition()),
        TableDay(TABLE, old, get_today(), make_partition(), packed=clock.now()),
        TableDay(TABLE, old, get_today(), make_partition(), sealed=clock.now(), archived=archived),
        TableDay(
            TABLE, old, get_today(), make_partition(), sealed=clock.now(), verified=clock.now()
        ),
        TableDay(TABLE, old, get_today(), archived=archived),
        TableDay(TABLE, get_today() + timedelta(days=1), get_today(), make_partition()),
    ]
    assert [first.state for first in actual] == [*STATES]


def test_calendar_shows_state_of_each_day(tables: None, client: Client, settings: Settings) -> None:
    values = {"ANNALS_RETENTION_DAYS": "3", "ANNALS_AHEAD_DAYS": "2", "ANNALS_HOLD_DAYS": "7"}
    values["ANNALS_LANGUAGE"] = "en"
    settings.ANNALS = env.read_settings({**values, "ANNALS_SEAL_DAYS": "1"})
    pending, sealed, archived = (get_today() - timedelta(days=number) for number in (5, 2, 9))
    with connect_plainly() as plain:
        for day in (pending, sealed, get_today(), get_today() - timedelta(days=13)):
            days.create_partition(plain, TABLE, day)
    SealedDay.objects.create(table=TABLE, day=sealed, packed_at=clock.now())
    ingest_rows.create_quarantined(day=pending)
    DaySeal.objects.create(
        table=TABLE,
        day=sealed,
        rows=1,
        digest="d",
        ranges=[],
        previous="p",
        seal="s",
        sealed_at=clock.now() - timedelta(hours=1),
    )
    VerifiedTable.objects.create(table=TABLE, started_at=clock.now(), days=1, faults=0)
    ArchivedDay.objects.create(
        table=TABLE,
        day=archived,
        rows=12345,
        table_bytes=9,
        file_bytes=1024,
        digest="",
        files=[],
        archived_at=clock.now(),
    )
    client.force_login(User.objects.get(username="ops"))
    page = client.get("/admin/days/").content.decode()
    for day, state in ((pending, "held"), (archived, "archived"), (get_today(), "missing")):
        assert f'class="{state}" href="?day={day}#day"' in page
    page_text = read_text(client.get("/admin/days/"))
    assert "1 unresolved in quarantine" in page_text
    assert f"held until {pending + timedelta(days=10):%Y-%m-%d} at most" in page_text
    page_text = read_text(client.get("/admin/days/", {"day": str(sealed)}))
    assert "sealed and verified" in page_text
    assert f"dropped after {sealed + timedelta(days=3):%Y-%m-%d}" in page_text
    assert "12 345" in read_text(client.get("/admin/days/", {"day": str(archived)})).replace(
        "\N{NO-BREAK SPACE}", " "
    )
    page_text = read_text(client.get("/admin/operations/"))
    assert "packed: 1" in page_text
    assert "Days are kept longer than retention says. Application " in page_text
    assert "Days have no partition" in page_text
    for wrong in ("x", "1999-01-01", "2026-1"):
        assert client.get("/admin/days/", {"day": wrong}).status_code == 200


@pytest.mark.plain_only(
    "Citus would log in to its nodes as the role of SET ROLE, which is not a login"
)
def test_days_page_says_on_which_day_an_overdue_step_became_due(
    tables: None, client: Client
) -> None:
    day = get_today() - timedelta(days=6)
    with connect_plainly() as plain:
        days.create_partition(plain, TABLE, day)
        plain.execute(
            f"INSERT INTO {TABLE} (id, version, data, updated_at, client_id, type)"
            " SELECT 'A1', n, '{}', %s, 's', 1 FROM generate_series(1, 1000) n",
            [day],
        )
        plain.execute(f"ANALYZE {TABLE}")
    client.force_login(User.objects.get(username="ops"))
    call_command("grants", apply=True)
    connection.cursor().execute(f"SET ROLE {WEB}")  # which may not read partitions
    try:
        page_text = read_text(client.get("/admin/days/"))
        assert re.search(f"Not packed yet {day:%Y-%m-%d} Application : .*was never read", page_text)
        page_text = read_text(client.get("/admin/days/", {"day": str(day)}))
        assert (
            f"to be packed, due since {day + timedelta(days=3):%Y-%m-%d}; sealed after" in page_text
        )
    finally:
        connection.cursor().execute("RESET ROLE")
    for topic in BY_TABLE[TABLE].topics:
        RetiredTopic.objects.create(topic=topic, why="x", retired_at=clock.now())
    assert "waits for the next annals partitions maintain" in read_text(client.get("/admin/days/"))


def test_consecutive_days_with_same_next_step_are_shown_as_one_line(
    tables: None, client: Client
) -> None:
    newest = get_today() - timedelta(days=6)
    with connect_plainly() as plain:
        for day in (newest, newest - timedelta(days=1)):
            for table in (TABLE, OTHER_TABLE):
                days.create_partition(plain, table, day)
                child = table == OTHER_TABLE
                plain.execute(
                    f"INSERT INTO {table} (id, version, data, updated_at, client_id, type"
                    + (", product_instance_id)" if child else ")")
                    + " SELECT 'A1', n, '{}', %s, 's', 1"
                    + (", 'A1'" if child else "")
                    + " FROM generate_series(1, 1000) n",
                    [day],
                )
                plain.execute(f"ANALYZE {table}")
    for table in (TABLE, OTHER_TABLE):
        for topic in BY_TABLE[table].topics:
            RetiredTopic.objects.create(topic=topic, why="x", retired_at=clock.now())
    client.force_login(User.objects.get(username="ops"))
    client.cookies["django_language"] = "en"
    page_text = read_text(client.get("/admin/days/"))
    assert page_text.count("waits for the next annals partitions maintain") == 1
    older = newest - timedelta(days=1)
    assert f"{older:%Y-%m-%d} – {newest:%Y-%m-%d}, 4 daily tables : waits for the next" in page_text
    first = read_text(client.get("/admin/days/", {"day": str(newest)}))
    assert first.count("waits for the next annals partitions maintain") == 2


@pytest.mark.parametrize(
    ("reasons", "message"),
    [
        ([Explanation(Code.UNRESOLVED, n=3)], "не разобрано в карантине: 3"),
        (
            [
                Explanation(Code.NEVER_READ, where="t-1"),
                Explanation(Code.END_UNKNOWN, where="t[0]"),
            ],
            "t-1 ни разу не читался; конец t[0]",
        ),
        (
            [Explanation(Code.END_NOT_SEEN, where="t[0]", at="2026-11-20 10:00 UTC")],
            "никто не видел с 20",
        ),
        ([Explanation(Code.UNREAD, where="t[0]", n=1234)], "не прочитано в t[0]: 1234"),
        ([Explanation(Code.SUMS_WRONG, where="t[0]")], "учёт t[0] не сходится"),
    ],
)
def test_reason_why_day_is_held_is_in_language_of_page(
    reasons: list[Explanation], message: str
) -> None:
    with translation.override("ru"):
        assert message in translate_all(reasons)


def test_stored_reason_stays_english_when_explanation_is_unknown_or_does_not_match_reason() -> None:
    stored = Explanation(Code.BAD_IN_A_ROW, n=3).to_json()
    with translation.override("ru"):
        assert translate_stored("3 bad messages in a row", stored) == "плохих сообщений подряд: 3"
    for unknown in (None, {}, {"code": "new", "parameters": {}}, {**stored, "parameters": {}}):
        assert translate_stored("3 bad messages in a row", unknown) == "3 bad messages in a row"
    assert translate_stored("4 bad messages in a row", stored) == "4 bad messages in a row"
