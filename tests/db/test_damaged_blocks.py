"""Damaged blocks: each answer is correct, or names the day with versions that cannot be read."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from history import timeline
from history.completeness import trace
from history.kinds.entities import BY_NAME, get_root
from history.models import SearchKey
from history.retention import packing
from history.retention.archive.store import ArchiveStore as Files
from history.retention.archive.write import DayArchiver
from history.retention.runs import StepResult
from history.retention.seals import verification
from history.retention.seals.seal import seal_day, seal_days
from history.store.blocks import codec, queries
from history.store.blocks.codec import DamagedBlockError
from history.store.days import canonical, days
from history.store.days.canonical import Connection
from history.timeline import (
    HistoryReader,
    TimelineOrder,
    TimelineQuery,
    TimelineSort,
    VersionFilters,
)
from history.timeline.reader import HistoryReader as GateReader
from tests.db.commands import run_command
from tests.db.partitioned import connect_plainly
from tests.db.store import HOST, T0, Store, minute

pytestmark = pytest.mark.usefixtures("tables")
ROOT, TASK = get_root(), BY_NAME["product-task"]
DAY = T0.date()
DAYS = [DAY - timedelta(1), DAY, DAY + timedelta(1)]
NUMBERS = [0, 1, 2, 3, 5, 6, 7, 9, 10]
Answers = dict[str, Any]


@pytest.fixture(autouse=True)
def no_search_keys(tables: None) -> Iterator[None]:
    yield
    SearchKey.objects.all().delete()


def make_moment(number: int) -> datetime:
    """Return the moment of a version.

    Versions up to 2 are on the day before DAY, 3 to 7 on DAY, and from 8 on the day after DAY.
    """
    return minute(60 * 24 * ((number > 2) + (number > 7) - 1) + number)


def fill(plain: Connection) -> None:
    for entity in (ROOT, TASK):
        for day in DAYS:
            days.create_partition(plain, entity.table, day)
    store = Store()
    for id in ("A1", "A2"):
        for number in NUMBERS:
            data = {"id": id, "rate": f"{number // 2}.5", "text": "д" * 30, "n": number}
            author = ("m.ivanov", None, "m.prygunov")[number % 3]
            client = ("top-crm", "rate")[number % 2]
            store.add(id, number, data, make_moment(number), author=author, client=client)
    for number in (3, 6):
        store.add("T1", number, {"n": number}, make_moment(number), entity=TASK, application="A1")
        store.add("T2", number, {"n": number}, make_moment(number), entity=TASK, application="A1")


def pack(plain: Connection) -> None:
    for entity in (ROOT, TASK):
        for day in DAYS:
            packing.pack_day(plain, entity, day)


def fetch_block(plain: Connection, id: str = "A1", day: date = DAY) -> dict[str, Any]:
    names = ["version", "updated_at", "type", "client_id", "author", *queries.BLOCK_COLUMNS]
    rows = plain.execute(
        f"SELECT {', '.join(names)} FROM {_table(id)} WHERE id = %s AND packed IS NOT NULL"
        " AND (updated_at AT TIME ZONE 'UTC')::date = %s",
        [id, day],
    ).fetchall()
    [row] = rows
    return dict(zip(names, row, strict=True))


def change_block(
    plain: Connection, row: dict[str, Any], to: dict[str, Any], id: str = "A1"
) -> None:
    """Change columns of a block by SQL, past all checks."""
    sets = ", ".join(f"{name} = %s" for name in to)
    plain.execute(
        f"UPDATE {_table(id)} SET {sets} WHERE id = %s AND version = %s AND updated_at = %s",
        [*to.values(), id, row["version"], row["updated_at"]],
    )


def _table(id: str) -> str:
    return ROOT.table if id.startswith("A") else TASK.table


def flip_packed(plain: Connection, id: str = "A1", day: date = DAY) -> None:
    row = fetch_block(plain, id, day)
    changed = bytearray(row["packed"])
    changed[len(changed) // 2] ^= 1
    change_block(plain, row, {"packed": bytes(changed)}, id)


def flip_names(plain: Connection, id: str = "A1", day: date = DAY) -> None:
    row = fetch_block(plain, id, day)
    change_block(plain, row, {"names": chr(ord(row["names"][0]) ^ 1) + row["names"][1:]}, id)


def list_flips(value: Any) -> list[Any]:
    """Return damaged variants of the value of a column.

    In each variant one bit is flipped. If the value is a list, the last variant is None instead. If
    the value is None, the only variant is a text.
    """
    if value is None:
        return ["somebody"]
    return list(_FLIPS[type(value)](value))


def _moments(value: datetime) -> Iterator[datetime]:
    """Yield moments of the same day that differ from `value` in one bit.

    A moment of a different day would belong to a different partition of the table.
    """
    for bit in range(36):
        micros = int((value - queries.EPOCH) / timedelta(microseconds=1)) ^ 1 << bit
        moment = queries.EPOCH + timedelta(microseconds=micros)
        if moment.date() == value.date():
            yield moment


def _texts(value: str) -> Iterator[str]:
    for index, letter in enumerate(value):
        for bit in (0, 2):
            yield value[:index] + chr(ord(letter) ^ 1 << bit) + value[index + 1 :]


def _lists(value: list[int]) -> Iterator[list[int] | None]:
    for index, number in enumerate(value):
        for bit in (0, 1, 4, 20):
            yield [*value[:index], number ^ 1 << bit, *value[index + 1 :]]
    yield None


def _bytes(value: bytes) -> Iterator[bytes]:
    for index in range(len(value)):
        yield value[:index] + bytes([value[index] ^ 1 << index % 8]) + value[index + 1 :]
    yield bytes([value[0] ^ 128]) + value[1:]  # the bit that marks the format of the block


_FLIPS: dict[type, Callable[[Any], Iterator[Any]]] = {
    int: lambda value: (value ^ 1 << bit for bit in range(31)),
    datetime: _moments,
    str: _texts,
    list: _lists,
    bytes: _bytes,
}


def list_questions() -> dict[str, Callable[[HistoryReader], Any]]:
    moments = [make_moment(number) + timedelta(seconds=1) for number in (2, 4, 6, 7, 8, 10)]
    calls: dict[str, Callable[[HistoryReader], Any]] = {
        "newest": lambda reader: timeline.fetch_newest_version(reader, ROOT, "A1"),
        "blame": lambda reader: timeline.blame_leaves(reader, ROOT, "A1"),
        "field": lambda reader: timeline.fetch_field_history(reader, ROOT, "A1", "/rate"),
        "compare": lambda reader: timeline.compare_versions(reader, ROOT, "A1", 3, 7),
        "search": lambda reader: timeline.search(reader, "A1"),
        "trace": lambda reader: trace.trace_version(reader, ROOT, "A1", 5),
        "application": lambda reader: timeline.fetch_page(reader, TimelineQuery(id="A1")),
        "application, by a service": lambda reader: timeline.fetch_page(
            reader, TimelineQuery(id="A1", filters=VersionFilters(client_id="rate"))
        ),
    }
    for order in TimelineOrder:
        for sort in TimelineSort:
            calls[f"page {order} {sort}"] = lambda reader, order=order, sort=sort: (
                timeline.fetch_page(
                    reader, TimelineQuery(entity=ROOT, id="A1", order=order, sort=sort)
                )
            )
            calls[f"page of 2 {order} {sort}"] = lambda reader, order=order, sort=sort: (
                timeline.fetch_page(
                    reader, TimelineQuery(entity=ROOT, id="A1", order=order, sort=sort, page_size=2)
                )
            )
    for name, filters in {
        "author": VersionFilters(author="m.prygunov"),
        "service": VersionFilters(client_id="rate"),
        "time": VersionFilters(since=make_moment(4), until=make_moment(6)),
    }.items():
        calls[f"page by {name}"] = lambda reader, filters=filters: timeline.fetch_page(
            reader, TimelineQuery(entity=ROOT, id="A1", filters=filters)
        )
    for number in (2, 5, 7, 9):
        calls[f"version {number}"] = lambda reader, number=number: timeline.fetch_version(
            reader, ROOT, "A1", number
        )
    for moment in moments:
        calls[f"at {moment}"] = lambda reader, moment=moment: timeline.fetch_version_at(
            reader, ROOT, "A1", moment
        )
        calls[f"application at {moment}"] = lambda reader, moment=moment: (
            timeline.fetch_application_at(reader, "A1", moment)
        )
    return calls


def call_and_catch_damage(call: Callable[[HistoryReader], Any]) -> tuple[Any, GateReader]:
    reader = replace(HOST, damaged={})
    try:
        answer = call(reader)
    except DamagedBlockError as error:
        return error, reader
    if isinstance(
        answer, timeline.TimelinePage
    ):  # the end of a token is its signature, which depends on the time
        answer = replace(answer, next_token=(answer.next_token or "").rpartition(":")[0][:40])
    return answer, reader


def check_answer(name: str, answer: Any, reader: GateReader, correct_answer: Any) -> None:
    """Check that an answer is correct or reports the damage."""
    if isinstance(answer, DamagedBlockError) or (
        isinstance(answer, trace.Fate) and answer.state is trace.FateState.DAMAGED
    ):
        assert answer.day == DAY, name
    elif not reader.damaged:
        assert answer == correct_answer, name
    elif name == "search":
        assert all(hit in correct_answer.results for hit in answer.results), name
    elif name.startswith("application at"):
        true_children = {(part.entity, part.id): part for part in correct_answer.children}
        assert all(part == true_children[part.entity, part.id] for part in answer.children), name
        assert answer.application in (None, correct_answer.application), name
        assert any(part.reason is timeline.Absence.DAMAGED for part in answer.missing), name
    else:
        assert all(version in correct_answer.versions for version in answer.versions), name
        assert answer.damaged, name
    assert {error.day for error in reader.damaged.values()} <= {DAY}, name  # type: ignore[attr-defined]


def stream(plain: Connection) -> Any:
    """Return the rows that exports and seals read from DAY, or the text that names the damage."""
    try:
        return list(
            canonical.stream_versions(plain, ROOT, days.locate_day(plain, ROOT.table, DAY).child)
        )
    except DamagedBlockError as error:
        text, name = str(error), f"{ROOT.table} {DAY}: the packed versions of A1"
        return name if text.startswith(f"{name} cannot be read: ") else text


@pytest.mark.parametrize(
    "column", ["version", "updated_at", "type", "client_id", "author", *queries.BLOCK_COLUMNS]
)
def test_answer_is_right_or_names_the_damaged_day_when_any_bit_is_flipped(
    column: str, plain: Connection
) -> None:
    fill(plain)
    pack(plain)
    calls = list_questions()
    correct_answers = {name: call_and_catch_damage(call)[0] for name, call in calls.items()}
    assert not any(isinstance(item, Exception) for item in correct_answers.values())
    row = fetch_block(plain)
    whole = stream(plain)
    assert row["versions"]
    assert row["names"]
    values = list_flips(row[column])
    values = values[:: max(1, len(values) // 16)] + values[-1:]
    for value in values:
        change_block(plain, row, {column: value})
        for name, call in calls.items():
            check_answer(name, *call_and_catch_damage(call), correct_answers[name])
        assert stream(plain) in (whole, f"{ROOT.table} {DAY}: the packed versions of A1")
        where = row | ({column: value} if column in ("version", "updated_at") else {})
        change_block(plain, where, {column: row[column]})
    assert all(
        call_and_catch_damage(call)[0] == correct_answers[name] for name, call in calls.items()
    )


def test_blocks_without_a_checksum_are_still_read(
    monkeypatch: pytest.MonkeyPatch, plain: Connection
) -> None:
    """An earlier release wrote blocks without a checksum."""
    packed = codec.BlockPacker.pack_block

    def pack_without_checksum(self: codec.BlockPacker, rows: Any) -> Any:
        row, block = packed(self, rows)
        if block is None:
            return row, None
        number = (
            int.from_bytes(block.packed[: codec.DICTIONARY_NUMBER_BYTES]) & ~(1 << 31)
        ).to_bytes(codec.DICTIONARY_NUMBER_BYTES)
        keys = (block.keys or b"")[: -codec.CHECKSUM] or None
        return row, block._replace(
            keys=keys, packed=number + block.packed[codec.DICTIONARY_NUMBER_BYTES :]
        )

    fill(plain)
    calls = list_questions()
    correct_answers = {name: call_and_catch_damage(call)[0] for name, call in calls.items()}
    before = list(
        canonical.stream_versions(plain, ROOT, days.locate_day(plain, ROOT.table, DAY).child)
    )
    with monkeypatch.context() as patch:
        patch.setattr(codec.BlockPacker, "pack_block", pack_without_checksum)
        pack(plain)
    row = fetch_block(plain)
    assert len(row["keys"]) % 8 == 0
    assert {name: call_and_catch_damage(call)[0] for name, call in calls.items()} == correct_answers
    flip_packed(plain)
    answer, _ = call_and_catch_damage(calls["version 5"])
    assert isinstance(answer, DamagedBlockError)
    change_block(plain, row, {"packed": row["packed"]})
    packing.pack_day(plain, ROOT, DAY)
    assert len(fetch_block(plain)["keys"]) % 8 == codec.CHECKSUM
    after = list(
        canonical.stream_versions(plain, ROOT, days.locate_day(plain, ROOT.table, DAY).child)
    )
    assert after == before


def test_checksum_of_a_block_is_the_same_in_every_release() -> None:
    """Later releases must be able to check the blocks that earlier releases wrote."""
    row = ("A1", 7, 1_760_000_000_123_456, "top-crm", None, 1, "P1", b"{}")
    checksum = codec.compute_checksum(row, 431, bytes(range(16)), [3, 5, 7], "m.ivanov\nд")
    assert checksum.hex() == "9049da57"


@pytest.mark.parametrize("flip", [flip_packed, flip_names])
@pytest.mark.parametrize("target", ["directory", "stream"])
def test_export_has_all_that_can_be_read_when_a_block_is_damaged(
    flip: Callable[[Connection], None],
    target: str,
    tmp_path: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    with connect_plainly() as plain:
        fill(plain)
        pack(plain)
        flip(plain)
    span = ("--from", str(DAYS[0]), "--to", str(DAYS[2] + timedelta(1)))
    words = ("export", "--entity", ROOT.name, *span, "--format", "jsonl", "--unmasked", "a test")
    where = ("--output", str(tmp_path)) if target == "directory" else ()
    code, _out, err = run_command(*words, *where)
    assert code == 1, err
    lines = capsysbinary.readouterr().out.decode().splitlines()
    if target == "directory":
        files = [item for item in sorted(tmp_path.iterdir()) if not item.name.startswith(".")]
        assert len(files) == 3
        lines = [line for item in files for line in item.read_text().splitlines()]
    versions = sorted((json.loads(line)["id"], json.loads(line)["version"]) for line in lines)
    lost = {("A1", number) for number in NUMBERS if make_moment(number).date() == DAY}
    assert versions == sorted({(id, n) for id in ("A1", "A2") for n in NUMBERS} - lost)
    assert f"{ROOT.table} {DAY}: the packed versions of A1" in err
    if target == "directory":  # a repeated export writes the day again after the repair
        name = f"{ROOT.table}_{DAY:%Y%m%d}.jsonl"
        assert not (tmp_path / f".{name}.rows").exists()
        assert (tmp_path / f".{ROOT.table}_{DAYS[0]:%Y%m%d}.jsonl.rows").exists()


@pytest.mark.parametrize("flip", [flip_packed, flip_names])
def test_search_and_application_show_undamaged_documents_when_a_block_is_damaged(
    flip: Callable[..., None],
) -> None:
    with connect_plainly() as plain:
        fill(plain)
        for number in (8, 9):  # versions of T2 on another day, which stays readable
            Store().add(
                "T2", number, {"n": number}, make_moment(9 + number), entity=TASK, application="A1"
            )
        pack(plain)
        if flip is flip_names:
            row = fetch_block(plain, "T1")
            change_block(plain, row, {"author": "nobody"}, "T1")
        else:
            flip_packed(plain, "T1")
        flip(plain, "A2", DAYS[2])
    kinds = {"T1": TASK, "T2": TASK, "A2": ROOT}
    for id, kind in kinds.items():
        SearchKey.objects.create(
            value="4455",
            name=(kind.search or ROOT.search)[0][0],
            entity=kind.name,
            id=id,
            day=DAY,
        )
    client = Client()
    client.force_login(User.objects.get(username="auditor"))
    search = client.get("/api/v1/search?q=A1")
    assert search.status_code == 200
    assert "damaged" not in search.json()["data"]
    lacking = client.get("/api/v1/search?q=A2")
    assert (lacking.status_code, lacking.json()["data"]["results"]) == (200, [])
    assert [item["id"] for item in lacking.json()["data"]["damaged"]] == ["A2"]
    history = client.get("/api/v1/applications/A1/history").json()["data"]
    versions = {(item["id"], item["version"]) for item in history["history"]}
    assert versions >= {("A1", number) for number in NUMBERS} | {("T2", 3), ("T2", 6)}
    assert not [item for item in versions if item[0] == "T1"]
    assert {item["id"] for item in history["damaged"]} == {"T1"}
    moment = f"{make_moment(7):%Y-%m-%dT%H:%M:%S}Z"
    state = client.get(f"/api/v1/applications/A1/at?time={moment}").json()["data"]
    assert {"kind": TASK.name, "id": "T1", "reason": "damaged"} in state["missing"]
    assert [item["id"] for item in state["children"][TASK.name]] == ["T2"]
    traced = client.get(f"/api/v1/trace?entity={TASK.name}&id=T1&version=6").json()["data"]
    assert traced["state"] == "damaged"
    assert str(DAY) in traced["why"]
    for path in (
        reverse("admin:history_search") + "?q=A1+A2",
        reverse("admin:history_application", args=["A1"]),
        reverse("admin:history_application_at", args=["A1"]),
        reverse("admin:history_client") + "?q=4455",
        "/admin/",
    ):
        page = client.get(path)
        assert page.status_code == 200, path
    address = reverse("admin:history_application", args=["A1"])
    client.cookies["django_language"] = "en"
    page = client.get(address)
    assert f"stored versions of {DAY} are damaged" in page.text


def test_other_days_are_verified_sealed_archived_and_indexed_when_a_block_is_damaged(
    tmp_path: Path, plain: Connection
) -> None:
    fill(plain)
    for day in DAYS:
        seal_day(plain, ROOT, day)
    pack(plain)
    flip_packed(plain)
    faults = {verdict.day: verdict.fault for verdict in verification.verify_days(plain, ROOT)}
    assert [bool(faults[day]) for day in DAYS] == [False, True, False]
    assert "the packed versions of A1" in str(faults[DAY])
    results = {day: error for _, day, error in seal_days([(ROOT, day) for day in DAYS])}
    assert [isinstance(results[day], DamagedBlockError) for day in DAYS] == [False, True, False]
    archiver = DayArchiver(Files(str(tmp_path)))
    outcome = StepResult()
    for day in DAYS:
        error: Exception | None = None
        try:
            archiver.archive(plain, ROOT.table, day)
        except DamagedBlockError as failed:
            error = failed
        outcome.note_result(outcome.dropped, str(day), error)
    assert (outcome.dropped, len(outcome.broken)) == ([str(DAYS[0]), str(DAYS[2])], 1)
    code, out, err = run_command("search", "index", "--json")
    assert out, err
    assert (code, json.loads(out)["damaged"]) == (1, 1)
    assert f"{DAY}: the packed versions of A1" in err
    code, _out, err = run_command("gaps")
    assert code == 0, err


def hides_all(_user: object, _application: object) -> bool:
    """Answer as a need-to-know rule that hides every application."""
    return False


def test_damage_in_a_hidden_application_is_not_revealed(settings: Any) -> None:
    with connect_plainly() as plain:
        fill(plain)
        pack(plain)
        flip_packed(plain, "T1")
        flip_names(plain)
    rule = f"{__name__}.hides_all"
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, need_to_know=rule)
    client = Client()
    client.force_login(User.objects.get(username="auditor"))
    for path in (
        f"history/{ROOT.name}/A1",
        f"history/{ROOT.name}/A1/versions/5",
        f"history/{TASK.name}/T1",
        "applications/A1/history",
        "search?q=A1",
        f"trace?entity={TASK.name}&id=T1&version=6",
    ):
        answer = client.get(f"/api/v1/{path}")
        assert answer.status_code in (200, 403, 503), path
        assert "damaged" not in answer.text, path
        assert str(DAY) not in answer.text, path
