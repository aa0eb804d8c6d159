"""How much each service brings: counted, and estimated from some versions; the command, the days
that it counts, and which changes are technical."""

import io
import json
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from history.base import clock
from history.capacity import client_shares
from history.daily import days
from history.models import DayShare, FieldLabel
from history.partitions import catalog
from tests.db import simulated
from tests.db.partitioned import TABLE, TABLES, raw

pytestmark = pytest.mark.usefixtures("tables")

TODAY = clock.now().date()
YESTERDAY, BEFORE = TODAY - timedelta(days=1), TODAY - timedelta(days=2)


def share(*words: str) -> dict[str, Any]:
    said = io.StringIO()
    call_command("share", "--json", *words, stdout=said, stderr=io.StringIO())
    found: dict[str, Any] = json.loads(said.getvalue())
    return found


def put(
    plain: psycopg.Connection[Any],
    day: date,
    client: str,
    id_: str,
    version: int,
    data: dict[str, Any],
    type_: int = 1,
) -> None:
    days.create(plain, TABLE, day)
    moment = datetime.combine(day, time(1, 0, version % 60), UTC)
    plain.execute(
        f"INSERT INTO {TABLE} (id, version, updated_at, client_id, type, data)"
        " VALUES (%s, %s, %s, %s, %s, %s)",
        [id_, version, moment, client, type_, json.dumps(data)],
    )


def example(plain: psycopg.Connection[Any]) -> None:
    """12 versions of two services, of two days."""
    put(plain, BEFORE, "crm", "A", 0, {"rate": "1.0", "modifiedAt": "x"}, 0)
    put(plain, YESTERDAY, "crm", "A", 1, {"rate": "1.0", "modifiedAt": "x"})  # nothing
    put(plain, YESTERDAY, "crm", "A", 2, {"rate": "1.0", "modifiedAt": "y"})  # technical
    put(plain, YESTERDAY, "crm", "A", 3, {"rate": "2.0", "modifiedAt": "z"})
    put(plain, YESTERDAY, "crm", "A", 4, {"rate": "2.0", "modifiedAt": "z"}, 2)  # a deletion
    put(plain, YESTERDAY, "robot", "B", 0, {"rate": "1.0"}, 0)
    for version in (1, 2, 3):
        put(plain, YESTERDAY, "robot", "B", version, {"rate": "1.0"})  # nothing
    put(plain, YESTERDAY, "robot", "B", 4, {"rate": "1.0", "hash": "h", "etag": "e"})  # technical
    put(plain, YESTERDAY, "robot", "B", 5, {"rate": "1.0", "hash": "h", "documents": []})
    put(plain, TODAY, "late", "C", 0, {"rate": "1.0"}, 0)  # the day is not over


def versions(found: dict[str, Any], client: str) -> tuple[float, float, float]:
    [mine] = [each for each in found["clients"] if each["clientId"] == client]
    return tuple(round(each["versions"], 9) for each in (mine, mine["nothing"], mine["technical"]))  # type: ignore[return-value]


def test_counted_exactly() -> None:
    with raw() as plain:
        example(plain)
    found = share()
    assert versions(found, "crm") == (5, 1, 1)
    assert versions(found, "robot") == (6, 3, 1)
    assert {each["clientId"] for each in found["clients"]} == {"crm", "robot"}
    assert (found["since"], found["until"], found["days"]) == (str(BEFORE), str(YESTERDAY), 2)
    assert found["compared"] == 11
    on_disk = sum(
        part.bytes
        for part in catalog.read(connection, TABLES)
        if part.table == TABLE and part.day != TODAY
    )
    assert found["total"]["bytes"] == pytest.approx(on_disk)
    parts = {each["clientId"]: each["share"] for each in found["clients"]}
    assert parts == {"robot": pytest.approx(6 / 11), "crm": pytest.approx(5 / 11)}
    saved = found["savedBytes"]
    scale = (found["retentionDays"] + 1) / 2
    nothing, technical = (found["total"][name]["bytes"] for name in ("nothing", "technical"))
    assert saved["nothing"] == pytest.approx(nothing * scale)
    assert saved["nothingAndTechnical"] == pytest.approx((nothing + technical) * scale)


def test_a_field_becomes_technical_in_the_catalogue() -> None:
    with raw() as plain:
        put(plain, YESTERDAY, "crm", "A", 0, {"pace": 1}, 0)
        put(plain, YESTERDAY, "crm", "A", 1, {"pace": 2})
    assert versions(share(), "crm") == (2, 0, 0)
    label = FieldLabel.objects.create(path="/pace", russian="Темп", kind="technical")
    try:
        assert versions(share(), "crm") == (2, 0, 0)
        assert versions(share("--again"), "crm") == (2, 0, 1)
    finally:
        label.delete()


def test_each_day_is_counted_once_and_forgotten_with_retention() -> None:
    with raw() as plain:
        example(plain)
    sampled: list[tuple[str, date]] = []
    record = {"rows": 1000, "again": False, "report": lambda *day: sampled.append(day)}
    client_shares.record(TODAY, 90, **record)
    assert {day for table, day in sampled if table == TABLE} == {YESTERDAY, BEFORE}
    before = list(DayShare.objects.order_by("id").values_list("id", "all"))
    sampled.clear()
    client_shares.record(TODAY, 90, **record)
    assert sampled == []
    assert list(DayShare.objects.order_by("id").values_list("id", "all")) == before
    client_shares.record(TODAY, 1, **record)
    assert set(DayShare.objects.values_list("day", flat=True)) == {YESTERDAY}
    assert client_shares.recorded(TODAY) is None


def test_a_few_versions_say_about_what_all_say() -> None:
    with raw() as plain:
        count = simulated.load(plain, YESTERDAY, applications=300)
    whole, some = share("--rows", "1000000"), share("--again", "--rows", "300")
    assert whole["compared"] == whole["total"]["versions"] == count == some["total"]["versions"]
    assert some["compared"] < count / 2
    assert some == share("--again", "--rows", "300")
    for name in ("nothing", "technical"):
        parts = [each["total"][name]["versions"] / count for each in (whole, some)]
        assert parts[1] == pytest.approx(parts[0], abs=0.15)


def test_the_table_for_people() -> None:
    said = io.StringIO()
    with raw() as plain:
        example(plain)
    call_command("share", stdout=said, stderr=io.StringIO(), no_color=True)
    text = said.getvalue()
    assert "54.5%" in text
    assert "50.0%" in text
    assert "A filter upstream of versions that change nothing: saves " in text


def test_nothing_is_there_yet() -> None:
    with pytest.raises(CommandError, match="no finished day is counted yet"):
        share("--stored")
