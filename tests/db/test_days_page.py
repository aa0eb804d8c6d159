"""The calendar of days: each state, why a day is held, and what happens next."""

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.test import Client
from pytest_django import Settings

from annals import env
from annals.access.grants import WEB
from annals.operations.days import STATES, TableDay
from history.base import clock
from history.daily import days
from history.daily.days import DayState
from history.entities import BY_TABLE
from history.models import ArchivedDay, DaySeal, SealedDay, VerifiedTable
from history.partitions.catalog import Partition
from ingest.completeness.views import why
from ingest.models import RetiredTopic
from tests.db import noted
from tests.db.partitioned import TABLE, raw
from tests.db.screens import text
from tests.messages import today

OTHER_TABLE = "product_task_aud"


def part(state: DayState = DayState.ATTACHED) -> Partition:
    return Partition(TABLE, "p", None, None, state, True, 5, 2048)


def test_each_state_has_one_word() -> None:
    old, archived = today() - timedelta(days=3), ArchivedDay(table=TABLE, day=today())
    found = [
        TableDay(TABLE, old, today()),
        TableDay(TABLE, old, today(), part(DayState.DETACHED)),
        TableDay(TABLE, old, today(), part(), held="x", sealed=clock.now()),
        TableDay(TABLE, old, today(), part()),
        TableDay(TABLE, old, today(), part(), packed=clock.now()),
        TableDay(TABLE, old, today(), part(), sealed=clock.now(), archived=archived),
        TableDay(TABLE, old, today(), part(), sealed=clock.now(), verified=clock.now()),
        TableDay(TABLE, old, today(), archived=archived),
        TableDay(TABLE, today() + timedelta(days=1), today(), part()),
    ]
    assert [one.state for one in found] == [*STATES]


def test_the_calendar(tables: None, client: Client, settings: Settings) -> None:
    given = {"ANNALS_RETENTION_DAYS": "3", "ANNALS_AHEAD_DAYS": "2", "ANNALS_HOLD_DAYS": "7"}
    settings.ANNALS = env.read({**given, "ANNALS_SEAL_DAYS": "1"})
    held, sealed, archived = (today() - timedelta(days=number) for number in (5, 2, 9))
    with raw() as plain:
        for day in (held, sealed, today(), today() - timedelta(days=13)):
            days.create(plain, TABLE, day)
    SealedDay.objects.create(table=TABLE, day=sealed, packed_at=clock.now())
    noted.held(day=held)
    DaySeal.objects.create(
        table=TABLE, day=sealed, rows=1, digest="d", ranges=[], previous="p", seal="s",
        sealed_at=clock.now() - timedelta(hours=1),
    )  # fmt: skip
    VerifiedTable.objects.create(table=TABLE, started_at=clock.now(), days=1, faults=0)
    ArchivedDay.objects.create(
        table=TABLE, day=archived, rows=12345, table_bytes=9, file_bytes=1024, digest="",
        files=[], archived_at=clock.now(),
    )  # fmt: skip
    client.force_login(User.objects.get(username="ops"))
    page = client.get("/admin/days/").content.decode()
    for day, state in ((held, "held"), (archived, "archived"), (today(), "missing")):
        assert f'class="{state}" href="?day={day}#day"' in page
    said = text(client.get("/admin/days/"))
    assert "не разобрано в карантине: 1" in said
    assert f"хранится не дольше чем до {held + timedelta(days=10):%d.%m.%Y}" in said
    said = text(client.get("/admin/days/", {"day": str(sealed)}))
    assert "опечатан и проверен" in said
    assert f"будет удалён после {sealed + timedelta(days=3):%d.%m.%Y}" in said
    assert "12 345" in text(client.get("/admin/days/", {"day": str(archived)})).replace(
        "\N{NO-BREAK SPACE}", " "
    )
    said = text(client.get("/admin/operations/"))
    assert "упаковано: 1" in said
    assert "Дни хранятся дольше срока. Заявка " in said
    assert "Для некоторых дней нет секций" in said
    for wrong in ("x", "1999-01-01", "2026-1"):
        assert client.get("/admin/days/", {"day": wrong}).status_code == 200


def test_what_is_overdue_is_not_called_next(tables: None, client: Client) -> None:
    day = today() - timedelta(days=6)
    with raw() as plain:
        days.create(plain, TABLE, day)
        plain.execute(
            f"INSERT INTO {TABLE} (id, version, data, updated_at, client_id, type)"
            " SELECT 'A1', n, '{}', %s, 's', 1 FROM generate_series(1, 1000) n", [day],
        )  # fmt: skip
        plain.execute(f"ANALYZE {TABLE}")
    client.force_login(User.objects.get(username="ops"))
    call_command("grants", apply=True)
    connection.cursor().execute(f"SET ROLE {WEB}")  # which reads no partition
    try:
        said = text(client.get("/admin/days/"))
        assert re.search(f"Ещё не упаковано {day:%d.%m.%Y} Заявка : .*ни разу не читался", said)
        said = text(client.get("/admin/days/", {"day": str(day)}))
        assert f"упаковка — пора с {day + timedelta(days=3):%d.%m.%Y}; будет опечатан после" in said
    finally:
        connection.cursor().execute("RESET ROLE")
    for topic in BY_TABLE[TABLE].topics:
        RetiredTopic.objects.create(topic=topic, why="x", retired_at=clock.now())
    assert "ждёт следующего запуска annals partitions maintain" in text(client.get("/admin/days/"))


def test_days_of_which_the_same_is_said_are_one_line(tables: None, client: Client) -> None:
    newest = today() - timedelta(days=6)
    with raw() as plain:
        for day in (newest, newest - timedelta(days=1)):
            for table in (TABLE, OTHER_TABLE):
                days.create(plain, table, day)
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
    said = text(client.get("/admin/days/"))
    assert said.count("waits for the next annals partitions maintain") == 1
    older = newest - timedelta(days=1)
    assert f"{older:%Y-%m-%d} – {newest:%Y-%m-%d}, 4 daily tables : waits for the next" in said
    one = text(client.get("/admin/days/", {"day": str(newest)}))
    assert one.count("waits for the next annals partitions maintain") == 2


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("3 unresolved in quarantine", "не разобрано в карантине: 3"),
        ("t-1 was never read; the end of t[0] is not known", "t-1 ни разу не читался; конец t[0]"),
        ("no consumer has seen the end of t[0] since 2026-11-20 10:00 UTC", "никто не видел с 20"),
        ("1,234 messages of t[0] not read yet", "не прочитано в t[0]: 1234"),
        ("the ledger of t[0] does not add up", "учёт t[0] не сходится"),
        ("something new", "something new"),
    ],
)
def test_why_a_day_is_held_is_in_the_language_of_the_page(reason: str, said: str) -> None:
    assert said in why(reason)
