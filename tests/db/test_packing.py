"""Packing a day does not lose, repeat or change a version, and damage to a packed day is found."""

import io
import json
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import psycopg
import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import ProgrammingError, connection
from django.test import Client
from psycopg import sql
from psycopg.copy import LibpqWriter
from pyarrow import parquet

from annals.demo.simulator import generate_messages
from history.common import clock
from history.documents.record import ChangeType, Record
from history.kinds.entities import (
    BY_NAME,
    BY_TOPIC,
    ENTITIES,
    EntityKind,
    get_root,
)
from history.models import (
    DaySeal,
    GapDay,
    GapDocument,
    PackDictionary,
    SealedDay,
    SearchKey,
    VersionGap,
)
from history.retention import packing
from history.retention.archive.restore import restore_day
from history.retention.archive.store import ArchiveStore as Files
from history.retention.archive.write import DayArchiver
from history.retention.seals import late_rows, verification
from history.retention.seals.seal import seal_day
from history.store.blocks import codec, dictionaries, queries
from history.store.blocks.codec import DamagedBlockError
from history.store.days import canonical, day_locks, days
from history.store.days.canonical import Connection, stream_versions
from history.store.days.window import Window
from history.store.kind_tables import create_missing
from history.timeline import pages, query
from ingest.messages.decode import decode
from ingest.messages.message import KafkaMessage
from ingest.store import copy as copying
from ingest.store.copy import encode_rows
from tests.db.partitioned import (
    connect_plainly,
    pack_finished_days,
    record_all_topics_as_read,
    run_partitions,
)
from tests.db.store import HOST, T0, Store, minute

pytestmark = pytest.mark.usefixtures("tables")
DAY = T0.date()
ROOT, TASK = get_root(), BY_NAME["product-task"]


def fill(plain: Connection, documents: int = 40, seed: int = 1) -> None:
    """Store versions of random documents on one day.

    Some version numbers of a document are missing, used twice, or not in the order of the moments.
    Some versions are deletions without a snapshot. Some snapshots are too large to share a block.
    """
    random = Random(seed)
    for entity in (ROOT, TASK):
        days.create_partition(plain, entity.table, DAY)
    store = Store()
    for number in range(documents):
        entity = random.choice((ROOT, TASK))
        id = f"{entity.name[:1]}{number}"
        for version in range(random.choice((1, 2, 5, 90))):
            if random.random() < 0.05:
                continue
            data: object = {"id": id, "n": version, "text": "ж" * 40, "at": [number, "\\n\n"]}
            kind = ChangeType.UPDATE if version else ChangeType.CREATE
            if random.random() < 0.03:
                data, kind = None, ChangeType.DELETE
            if random.random() < 0.01:
                data = {"large": "x" * 300_000}
            minutes = 3 * version + random.choice((0, 1, 2, 9)) // 3 * 3
            for twin in range(random.choice((1, 1, 1, 1, 2))):
                store.add(
                    id,
                    version,
                    json.dumps(data),
                    minute(minutes + twin),
                    entity=entity,
                    type=kind,
                    author=random.choice((None, "m.ivanov", "m.prygunov") * 9 + ("a\tb",)),
                    client=random.choice(("top-crm", "rate") * 9 + ("a\nb",)),
                    application=random.choice(("A1",) * 9 + ("A2",)),
                )


def fill_simulated(plain: Connection, messages: int = 2_400) -> None:
    """Store applications from the simulator, enough to make dictionaries."""
    records_by_entity: dict[EntityKind, list[Record]] = {}
    window = Window.at(clock.now(), 90, 14)
    start = datetime.combine(DAY, time(), UTC)
    step = timedelta(days=1) / (messages + 1)
    for item in islice(generate_messages(1, start, step=step, side_by_side=16), messages):
        record = decode(KafkaMessage(item.topic, 0, 0, 0, item.key, item.value), window)
        records_by_entity.setdefault(BY_TOPIC[item.topic], []).append(record)
    for entity, records in records_by_entity.items():
        days.create_partition(plain, entity.table, DAY)
        with plain.transaction():
            names = copying.get_copy_columns(entity)
            copying.copy_pieces(plain, sql.Identifier(entity.table), names, encode_rows(records))


def read_rows(plain: Connection, entity: EntityKind, day: date = DAY) -> list[Any]:
    return list(stream_versions(plain, entity, days.locate_day(plain, entity.table, day).child))


def read_blocks(plain: Connection, entity: EntityKind = ROOT) -> list[tuple[Any, ...]]:
    return plain.execute(
        f"SELECT id, version, updated_at, packed FROM {entity.table} WHERE packed IS NOT NULL"
        " ORDER BY id"
    ).fetchall()


@pytest.mark.parametrize("seed", [*range(3), None], ids=str)
def test_pack_and_unpack_keep_every_version(seed: int | None, plain: Connection) -> None:
    """If `seed` is None, the simulator makes versions of all kinds; otherwise they are random."""
    if seed is None:
        fill_simulated(plain)
    else:
        fill(plain, seed=seed)
    for entity in ENTITIES if seed is None else (ROOT, TASK):
        before = read_rows(plain, entity)
        digest = canonical.compute_digest(
            plain, entity, days.locate_day(plain, entity.table, DAY).child
        )
        result = packing.pack_day(plain, entity, DAY)
        assert result.rows == len(before) == queries.count_versions(plain, _table(plain, entity))
        assert read_rows(plain, entity) == before
        new_digest = canonical.compute_digest(plain, entity, _table(plain, entity))
        assert (new_digest.rows, new_digest.finish()) == (digest.rows, digest.finish())
        assert len(read_blocks(plain, entity)) < len(before) * (0.7 if seed is None else 0.5)
        assert SealedDay.objects.get(table=entity.table, day=DAY).packed_at is not None
        packing.pack_day(plain, entity, DAY)
        assert read_rows(plain, entity) == before
        packing.unpack_day(plain, entity, DAY)
        assert (read_rows(plain, entity), read_blocks(plain, entity)) == (before, [])
    if seed is None:
        assert PackDictionary.objects.count() > 1


def _table(plain: Connection, entity: EntityKind) -> Any:
    return days.locate_day(plain, entity.table, DAY).child


def test_versions_in_a_block_have_one_application_and_ascending_moments(plain: Connection) -> None:
    fill(plain, 60)
    expected = {(*row[:3], row[6]) for row in read_rows(plain, TASK)}
    mixed = {id for id, *_, product in expected if product == "A2"}
    mixed &= {id for id, *_, product in expected if product == "A1"}
    packing.pack_day(plain, TASK, DAY)
    key_rows = plain.execute(f"SELECT keys FROM {TASK.table} WHERE keys IS NOT NULL").fetchall()
    assert key_rows
    of_blocks = plain.execute(
        "SELECT id, version, (extract(epoch FROM updated_at) * 1000000)::bigint, product"
        f" FROM {queries.build_versions_query(TASK)} AS stored WHERE in_block"
    ).fetchall()
    assert {block[0] for block in of_blocks} & mixed
    assert set(of_blocks) <= expected
    for (keys,) in key_rows:
        ago = [int.from_bytes(keys[start : start + 5]) for start in range(0, len(keys) - 7, 8)]
        assert ago == sorted(ago, reverse=True)
        assert len(ago) < codec.MOST_VERSIONS


@pytest.mark.plain_only("a cluster does not pack a day that changes meanwhile")
def test_pack_keeps_row_that_is_inserted_while_the_day_is_packed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill_new = packing.DayRewrite.fill_table

    def add_late_row(self: Any, *args: Any) -> Any:
        result = fill_new(self, *args)
        Store().add("a-late-one", 7, {"late": 1}, 5)
        with connect_plainly() as other_session:  # the note that ingest makes of a late row
            late_rows.mark_sealed_day(other_session, ROOT.table, DAY)
            other_session.execute(
                'INSERT INTO late_row ("table", day, row_id, version, row_hash, topic, partition,'
                ' "offset", noted_at, sealed) VALUES (%s, %s, %s, 7, %s, %s, 0, 1, now(), false)',
                [ROOT.table, DAY, "a-late-one", b"x", "topic"],
            )
        return result

    with connect_plainly() as plain:
        fill(plain)
        before = read_rows(plain, ROOT)
        monkeypatch.setattr(packing.DayRewrite, "fill_table", add_late_row)
        packing.pack_day(plain, ROOT, DAY)
        assert len(read_rows(plain, ROOT)) == len(before) + 1
        assert [row for row in read_rows(plain, ROOT) if row[0] != "a-late-one"] == before


@pytest.mark.parametrize("where", ["block", "table"])
def test_pack_fails_and_keeps_old_table_when_versions_of_new_table_differ_from_old_table(
    where: str, monkeypatch: pytest.MonkeyPatch, plain: Connection
) -> None:
    pack = codec.BlockPacker.pack_block

    def pack_wrongly(self: Any, blocks: Any) -> Any:
        return pack(self, [(*blocks[0][:-1], blocks[0][-1] + b" "), *blocks[1:]])

    fill(plain)
    before = read_rows(plain, ROOT)
    if where == "block":
        monkeypatch.setattr(codec.BlockPacker, "pack_block", pack_wrongly)
    else:  # as if the server had stored other bytes
        monkeypatch.setattr(packing._HashingWriter, "write", LibpqWriter.write)
    with pytest.raises(packing.WrongRowsError, match=f"{ROOT.table} {DAY} stays as it is"):
        packing.pack_day(plain, ROOT, DAY)
    record_all_topics_as_read()
    outcome = pack_finished_days(clock.now().date())
    assert (outcome.exit_code, outcome.packed) == (2, [])
    assert {name for name, _ in outcome.broken} == {
        days.build_partition_name(entity.table, DAY) for entity in (ROOT, TASK)
    }
    assert all(f"{DAY} stays as it is" in reason for _, reason in outcome.broken)
    assert (read_rows(plain, ROOT), read_blocks(plain), read_blocks(plain, TASK)) == (
        before,
        [],
        [],
    )


def test_packing_does_not_keep_all_large_snapshots_of_a_document_in_memory() -> None:
    versions = [("a", n, n, "top-crm", None, 1, b'"%0200000d"' % n) for n in range(40)]
    packed_blocks = list(map(codec.BlockPacker(None).pack_block, codec.split_into_blocks(versions)))
    with connect_plainly() as plain:
        tracemalloc.start()
        packing.DayRewrite(plain, ROOT, DAY, 0, lambda _: None).compare_versions(
            versions, packed_blocks, None
        )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000 < sum(len(row[-1]) for row in versions)


@pytest.mark.plain_only("a cluster waits for readers only when the new table is filled")
def test_pack_is_refused_when_day_is_in_use_or_disk_is_too_full(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setattr(day_locks, "LOCK_WAIT_S", 0.2)
    monkeypatch.setattr(packing.DayRewrite, "fill_table", None)
    with connect_plainly() as plain, connect_plainly() as reader:
        fill(plain, 2)
        with reader.transaction():
            reader.execute(f"SELECT FROM {ROOT.table}")  # pg_dump reads the day like this for hours
            with pytest.raises(psycopg.errors.LockNotAvailable, match="stays open"):
                packing.pack_day(plain, ROOT, DAY)
        monkeypatch.setattr(packing.DayRewrite, "measure_table", lambda *_: 10**9)
        settings.ANNALS = msgspec.structs.replace(settings.ANNALS, disk_gb=1)
        with pytest.raises(packing.NotPackableError, match=r"1\.1 GiB of disk"):
            packing.pack_day(plain, ROOT, DAY)


def test_pack_is_not_subject_to_time_limits_of_its_login(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packing a large day takes longer than any time limit of the login."""
    limits = []

    def note_limits(reader: Connection, *args: Any, **options: Any) -> Any:
        limits.append(reader.execute("SHOW transaction_timeout").fetchone())
        return canonical.stream_versions(reader, *args, **options)

    monkeypatch.setattr(packing, "stream_versions", note_limits)
    with connect_plainly() as plain:
        if plain.info.server_version < 170_000:
            pytest.skip("this server has no such limit")
        fill(plain, documents=4)
        names = {"login": plain.info.user, "database": plain.info.dbname}
        words = {name: sql.Identifier(text) for name, text in names.items()}
        alter = "ALTER ROLE {login} IN DATABASE {database} "
        plain.execute(sql.SQL(alter + "SET transaction_timeout = '1min'").format(**words))
        try:
            packing.pack_day(plain, ROOT, DAY)
        finally:
            plain.execute(sql.SQL(alter + "RESET transaction_timeout").format(**words))
    assert limits == [("0",)]


def test_seal_and_archive_of_packed_day_equal_those_of_plain_day(
    tmp_path: Any, plain: Connection
) -> None:
    fill(plain)
    seal = seal_day(plain, ROOT, DAY)
    before = read_rows(plain, ROOT)
    packing.pack_day(plain, ROOT, DAY)
    assert [day.fault for day in verification.verify_days(plain, ROOT)] == [None]
    assert seal_day(plain, ROOT, DAY).digest == seal.digest
    archiver = DayArchiver(Files(str(tmp_path)))
    archiver.archive(plain, ROOT.table, DAY)
    archived_day = archiver.archived[ROOT.table, DAY]
    assert (archived_day.rows, archived_day.digest) == (len(before), seal.digest)
    with pytest.raises(Exception, match="has all rows of the archive"):
        restore_day(plain, Files(str(tmp_path)), ROOT, DAY)


def flip_bit(plain: Connection, packed: bytes, id: str) -> None:
    changed = bytearray(packed)
    changed[len(changed) // 2] ^= 1
    plain.execute(f"UPDATE {ROOT.table} SET packed = %s WHERE id = %s", [bytes(changed), id])


def test_versions_of_block_with_flipped_bit_are_not_shown_and_damage_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with connect_plainly() as plain:
        fill(plain)
        seal_day(plain, ROOT, DAY)
        packing.pack_day(plain, ROOT, DAY)
        id, _, _, packed = read_blocks(plain)[0]
        flip_bit(plain, packed, id)
        faults = [day.fault for day in verification.verify_days(plain, ROOT)]
        assert f"the packed versions of {id}" in str(faults[0])
        with pytest.raises(DamagedBlockError, match=f"{ROOT.table} {DAY}: the packed versions"):
            pages.fetch_page(HOST, query.TimelineQuery(entity=ROOT, id=id))
    client = Client()
    client.force_login(User.objects.get(username="auditor"))
    answer = client.get(f"/api/v1/history/{ROOT.name}/{id}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "damaged")
    assert str(DAY) in answer.json()["error"]["message"]
    page = client.get(f"/admin/history/{ROOT.name}/{id}/")
    assert (page.status_code, f"{DAY} are damaged" in page.text) == (500, True)
    assert caplog.text.count(f"{ROOT.table} {DAY}: the packed versions of {id}") >= 2


@pytest.mark.parametrize("column", ["author", "client_id", "type", "version", "updated_at"])
def test_changed_column_of_block_is_detected(column: str, plain: Connection) -> None:
    """One changed block has several versions, the other one has a single version."""
    expressions = {"type": "(type + 1) %% 3", "version": "version + 1"}
    fill(plain)
    seal_day(plain, ROOT, DAY)
    packing.pack_day(plain, ROOT, DAY)
    for keys in ("octet_length(keys) > 4", "octet_length(keys) = 4"):
        value = expressions.get(column, "'nobody'")
        row = plain.execute(
            "SELECT id, timezone('UTC', updated_at + interval '1 microsecond')::text"
            f" FROM {ROOT.table} WHERE packed IS NOT NULL AND {keys} ORDER BY id LIMIT 1"
        ).fetchone()
        assert row is not None
        id, later = row
        if column == "updated_at":
            value = f"timestamptz '{later}+00'"
        with plain.transaction(force_rollback=True):
            plain.execute(f"UPDATE {ROOT.table} SET {column} = {value} WHERE id = %s", [id])
            try:
                day_table = days.locate_day(plain, ROOT.table, DAY)
                fault = verification._compare_in_snapshot(
                    plain, ROOT, DaySeal.objects.get(), day_table
                ).fault
            except DamagedBlockError as error:
                fault = str(error)
            assert fault


@pytest.mark.parametrize("change", ["DELETE FROM", "UPDATE"])
def test_error_names_missing_or_changed_dictionary(change: str, plain: Connection) -> None:
    days.create_partition(plain, ROOT.table, DAY)
    store = Store()
    for number in range(300):
        text = {"name": f"client {number}", "list": [number] * 5, "state": "APPROVED" * 4}
        store.add(f"d{number}", 0, text, number / 10)
    packing.pack_day(plain, ROOT, DAY)
    assert PackDictionary.objects.count() == 1
    before = read_rows(plain, ROOT)
    dictionaries._dictionaries_by_number.clear()
    assert read_rows(plain, ROOT) == before  # a new process reads the dictionary again
    how = " SET content = content || 'x'" if change == "UPDATE" else ""
    plain.execute(f"{change} pack_dictionary{how}")
    dictionaries._dictionaries_by_number.clear()
    with pytest.raises(DamagedBlockError, match=f"{DAY}.*dictionary.*missing or was changed"):
        read_rows(plain, ROOT)


def test_pack_refuses_day_that_is_too_recent_or_has_no_partition(plain: Connection) -> None:
    today = clock.now().date()
    days.create_partition(plain, ROOT.table, today)
    with pytest.raises(packing.NotPackableError, match="cannot be packed before"):
        packing.pack_day(plain, ROOT, today)
    with pytest.raises(packing.NotPackableError, match="partition does not exist"):
        packing.pack_day(plain, ROOT, DAY)


@pytest.mark.usefixtures("few_days")
def test_days_are_packed_once_by_maintain_and_unpacked_by_command(
    plain: Connection,
) -> None:
    fill(plain)
    code, out, _ = run_partitions("pack", str(DAY), "--entity", ROOT.name)
    assert (code, out.split(":")[0]) == (0, f"Packed {ROOT.table} {DAY}")
    code, out, _ = run_partitions("unpack", str(DAY), "--entity", ROOT.name)
    assert (code, out.split(":")[0]) == (0, f"Unpacked {ROOT.table} {DAY}")
    record_all_topics_as_read()
    line = f"{TASK.table}: 1 day to pack, {DAY} to {DAY}"
    for packed in ("2", "0"):
        assert (line in run_partitions("maintain", "--dry-run")[1]) is (packed == "2")
        assert run_partitions("maintain")[1].partition("packed ")[2][:1] == packed


def export_lines(folder: Path, kind: str) -> list[Any]:
    call_command(
        "export",
        "--entity",
        TASK.name,
        "--from",
        str(DAY),
        "--to",
        str(DAY + timedelta(1)),
        "--format",
        kind,
        "--output",
        str(folder),
        "--unmasked",
        "a test",
        stderr=io.StringIO(),
    )
    [file] = [path for path in folder.iterdir() if not path.name.startswith(".")]
    if kind == "parquet":
        return sorted(map(repr, parquet.read_table(file).to_pylist()))
    return sorted(file.read_bytes().splitlines())


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_export_of_packed_day_equals_export_of_plain_day(
    tmp_path: Path, kind: str, plain: Connection
) -> None:
    fill(plain)
    before = export_lines(tmp_path / "plain", kind)
    packing.pack_day(plain, TASK, DAY)
    assert export_lines(tmp_path / "packed", kind) == before
    assert len(before) > 100


def test_gaps_and_search_keys_are_read_from_blocks(plain: Connection) -> None:
    name, pointer = ROOT.search[0]
    path = pointer.strip("/").split("/")
    days.create_partition(plain, ROOT.table, DAY)
    store = Store()
    for version in (0, 1, 2, 5, 6):
        data: Any = f"key {version}"
        for part in reversed(path):
            data = {part: data}
        store.add("g1", version, data, version)
    created_at = T0 - timedelta(days=1)
    for version in (3, 4):
        store.add("g2", version, {"createdAt": created_at.isoformat()}, version)
    packing.pack_day(plain, ROOT, DAY)
    call_command("search", "index", stdout=io.StringIO(), stderr=io.StringIO())
    assert set(SearchKey.objects.filter(id="g1").values_list("name", "value")) == {
        (name, f"key {version}") for version in (0, 1, 2, 5, 6)
    }
    call_command("gaps", stdout=io.StringIO(), stderr=io.StringIO())
    assert GapDocument.objects.get(id="g2").since == created_at
    gap = VersionGap.objects.get(document="g1")
    assert (gap.first, gap.last) == (3, 4)
    for model in (SearchKey, VersionGap, GapDocument, GapDay):
        model.objects.all().delete()


def test_migration_adds_block_columns_to_older_tables(plain: Connection) -> None:
    with connection.cursor() as cursor:
        columns = ", ".join(f"DROP {name}" for name in queries.BLOCK_COLUMNS)
        cursor.execute(f"ALTER TABLE {TASK.table} {columns}, ALTER data SET NOT NULL")
        with pytest.raises(ProgrammingError):
            cursor.execute(f"SELECT packed FROM {TASK.table}")
    for _ in range(2):
        create_missing(using="default")
    fill(plain)
    packing.pack_day(plain, TASK, DAY)
    assert read_blocks(plain, TASK)


def test_threads_read_blocks_concurrently(plain: Connection) -> None:
    """If two threads share a decompressor, it returns wrong bytes or ends the process."""
    days.create_partition(plain, ROOT.table, DAY)
    store = Store()
    for number in range(300):
        text = {"name": f"client {number}", "list": [number] * 200, "state": "APPROVED" * 40}
        store.add(f"d{number % 30}", number // 30, text, number / 10)
    packing.pack_day(plain, ROOT, DAY)
    block_rows = read_blocks(plain)
    expected = [codec.unpack_snapshots(packed, _of(packed)) for *_, packed in block_rows]

    def read(_: int) -> bool:
        return [
            codec.unpack_snapshots(packed, _of(packed)) for *_, packed in block_rows * 20
        ] == expected * 20

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(read, range(16)))


def _of(packed: bytes) -> Any:
    return dictionaries.get_dictionary(codec.get_dictionary_number(packed))
