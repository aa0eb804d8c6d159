"""`partitions repair` mends a packed day in which a version is stored twice. Before that, the day
cannot be sealed, packed or unpacked."""

from datetime import timedelta

import pytest
from psycopg import errors, sql

from history.kinds.entities import ROOT
from history.models import DaySeal, DoubledVersion
from history.retention import packing
from history.retention.seals import verification
from history.retention.seals.seal import NotSealableError, add_seal, seal_day
from history.store.days import canonical, days, doubled_versions
from history.store.days.canonical import Connection, compute_digest, stream_versions
from ingest.messages.decode import Reason
from tests.db.ingested import Ingested
from tests.db.partitioned import TABLE, connect_plainly, run_partitions
from tests.messages import NOW, SOURCE, make_value, make_value_with_data

pytestmark = pytest.mark.usefixtures("tables")

MOMENT = NOW.replace(hour=12, minute=0, second=0) - timedelta(days=20)
OLD = MOMENT.date()
NAME = days.build_partition_name(TABLE, OLD)


def make_old_message(id: str, version: int, data: str | None = None) -> bytes:
    moment = (MOMENT + timedelta(minutes=version)).replace(tzinfo=None).isoformat()
    fields = {"id": id, "version": version, "updatedAt": moment}
    return make_value(**fields) if data is None else make_value_with_data(data.encode(), **fields)


FIRST = [make_old_message(id, version) for id in "abc" for version in range(5)]
KEYS = [(id, version) for id in "abc" for version in range(5)]


def list_keys() -> list[tuple[str, int]]:
    with connect_plainly() as plain:
        rows = stream_versions(plain, ROOT, days.locate_day(plain, TABLE, OLD).child)
        return [(row[0], row[1]) for row in rows]


@pytest.fixture
def doubled_day(tables: None, ingested: Ingested, plain: Connection) -> Ingested:
    """Store versions twice in a packed day, as an earlier release could.

    Three versions of `a` are repeated. One version of `b` is repeated with other content.
    """
    ingested.write(*FIRST)
    packing.pack_day(plain, ROOT, OLD)
    plain.execute(f"ALTER TABLE {NAME} DISABLE TRIGGER annals_refuse_packed")
    copy = (
        f"INSERT INTO {NAME} (id, version, data, updated_at, client_id, author, type)"
        " SELECT %s, version, data, updated_at, client_id, author, type FROM plain_copy"
        " WHERE id = %s AND version = ANY(%s)"
    )
    with connect_plainly() as session:
        packing.unpack_day(session, ROOT, OLD)
        session.execute(f"CREATE TABLE plain_copy AS TABLE {NAME}")
        packing.pack_day(session, ROOT, OLD)
        session.execute(f"ALTER TABLE {NAME} DISABLE TRIGGER annals_refuse_packed")
        session.execute(copy, ["a", "a", [0, 1, 2]])
        session.execute("""UPDATE plain_copy SET data = '{"other": 1}' WHERE id = 'b'""")
        session.execute(copy, ["b", "b", [3]])
        session.execute("DROP TABLE plain_copy")
        session.execute(f"ALTER TABLE {NAME} ENABLE ALWAYS TRIGGER annals_refuse_packed")
    return ingested


@pytest.mark.plain_only("only a single server refuses versions of blocks by a trigger")
def test_day_in_which_one_version_is_stored_twice_is_not_sealed_or_packed_or_unpacked(
    doubled_day: Ingested, plain: Connection
) -> None:
    day_table = days.locate_day(plain, TABLE, OLD)
    assert [
        key[:2] for key in doubled_versions.find_doubled_versions(plain, ROOT, day_table.child)
    ] == [
        *(("a", version) for version in range(3)),
        ("b", 3),
    ]
    twice = f"{TABLE} {OLD} has version 0 of a twice: run `partitions repair {OLD}`"
    with pytest.raises(NotSealableError, match=twice):
        seal_day(plain, ROOT, OLD)
    for rewrite in (packing.pack_day, packing.unpack_day):
        with pytest.raises(packing.DoubledVersionError, match=twice):
            rewrite(plain, ROOT, OLD)
    code, _, error = run_partitions("unpack", str(OLD), "--entity", ROOT.name)
    assert (code, twice in error) == (2, True)
    assert len(list_keys()) == len(FIRST) + 4


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("in_blocks", [False, True])
@pytest.mark.plain_only("only a single server refuses versions of blocks by a trigger")
def test_repair_keeps_one_row_of_each_version_that_is_stored_twice(
    sealed: bool,
    in_blocks: bool,
    doubled_day: Ingested,
    monkeypatch: pytest.MonkeyPatch,
    plain: Connection,
) -> None:
    """If two rows have equal contents, one of them stays. If their contents differ, the first row
    stays, and the second row is set aside."""
    if in_blocks:  # as if an earlier release packed the day again
        with monkeypatch.context() as patch:
            patch.setattr(packing.DayRewrite, "refuse_doubled", lambda _, rows: rows)
            packing.pack_day(plain, ROOT, OLD)
    if sealed:
        with plain.transaction():
            add_seal(
                plain,
                TABLE,
                OLD,
                compute_digest(plain, ROOT, days.locate_day(plain, TABLE, OLD).child),
            )
    code, out, error = run_partitions("repair", str(OLD), "--entity", ROOT.name)
    assert (code, error) == (0, "")
    assert f"{TABLE} {OLD}: b version 3 was stored twice" in out
    assert f"Repaired {TABLE} {OLD}: 4 rows removed, 1 of them with different content." in out
    assert list_keys() == KEYS
    moved = DoubledVersion.objects.get()
    assert (moved.table, moved.day, moved.row_id, moved.version) == (TABLE, OLD, "b", 3)
    if not in_blocks:  # in blocks it is not known which row was first
        assert moved.data == '{"other": 1}'
        result = doubled_day.write(*FIRST)
        assert (result.repeated[SOURCE], result.refused) == (len(FIRST), ())
    assert DaySeal.objects.count() == 2 * sealed
    assert [day.fault for day in verification.verify_days(plain, ROOT)] == [None] * sealed
    packing.pack_day(plain, ROOT, OLD)
    packing.unpack_day(plain, ROOT, OLD)
    assert list_keys() == KEYS
    code, out, error = run_partitions("repair", str(OLD), "--entity", ROOT.name)
    assert f"Repaired {TABLE} {OLD}: 0 rows removed" in out


@pytest.mark.parametrize("noted", [False, True])
@pytest.mark.parametrize("change", ["", """, data = '{"other": 1}'"""])
@pytest.mark.plain_only("only a single server refuses versions of blocks by a trigger")
def test_sealed_day_is_repaired_when_versions_were_stored_a_second_time_after_sealing(
    noted: bool, change: str, ingested: Ingested, plain: Connection
) -> None:
    """`maintain` sealed and packed the day. Then an earlier release stored versions again and noted
    them as late, or somebody inserted them by SQL."""
    again = "SELECT * FROM plain_copy WHERE id = 'a' AND version < 3"
    note = (
        'INSERT INTO late_row ("table", day, row_id, version, row_hash, topic, partition, "offset",'
        " noted_at, sealed) SELECT {}, {}, id, version, sha256({}), 'topic', 0, version, now(),"
        " false FROM (" + again + ") AS stored"
    )
    ingested.write(*FIRST)
    plain.execute(f"CREATE TABLE plain_copy AS TABLE {NAME}")
    seal_day(plain, ROOT, OLD)
    packing.pack_day(plain, ROOT, OLD)
    plain.execute(f"UPDATE plain_copy SET id = id {change}")
    plain.execute(f"ALTER TABLE {NAME} DISABLE TRIGGER annals_refuse_packed")
    plain.execute(f"INSERT INTO {NAME} {again}")
    plain.execute(f"ALTER TABLE {NAME} ENABLE ALWAYS TRIGGER annals_refuse_packed")
    if noted:
        plain.execute(
            sql.SQL(note).format(
                sql.Literal(TABLE), sql.Literal(OLD), canonical.build_encoding(ROOT)
            )
        )
    plain.execute("DROP TABLE plain_copy")
    code, out, error = run_partitions("repair", str(OLD), "--entity", ROOT.name)
    assert (code, error) == (0, "")
    assert "3 rows removed" in out
    assert list_keys() == KEYS
    assert [day.fault for day in verification.verify_days(plain, ROOT)] == [None]


@pytest.mark.plain_only("only a single server refuses versions of blocks by a trigger")
def test_changed_sealed_day_is_not_repaired(doubled_day: Ingested, plain: Connection) -> None:
    with plain.transaction():
        add_seal(
            plain, TABLE, OLD, compute_digest(plain, ROOT, days.locate_day(plain, TABLE, OLD).child)
        )
    plain.execute(f"DELETE FROM {NAME} WHERE id = 'c'")
    code, _, error = run_partitions("repair", str(OLD), "--entity", ROOT.name)
    assert (code, "is not as it was sealed" in error) == (2, True)
    assert DoubledVersion.objects.count() == 0


@pytest.mark.plain_only("only a single server refuses versions of blocks by a trigger")
def test_row_that_repair_command_moved_to_doubled_version_table_is_deleted_with_the_day(
    doubled_day: Ingested, plain: Connection
) -> None:
    run_partitions("repair", str(OLD), "--entity", ROOT.name)
    assert DoubledVersion.objects.count() == 1
    days.drop_partition(plain, TABLE, OLD)
    assert DoubledVersion.objects.count() == 0


def test_message_for_version_in_packed_day_is_repeated_if_equal_and_quarantined_if_different(
    tables: None, ingested: Ingested, plain: Connection
) -> None:
    ingested.write(*FIRST)
    packing.pack_day(plain, ROOT, OLD)
    result = ingested.write(
        *FIRST[:3], make_old_message("b", 3, '{"other": 1}'), make_old_message("new", 0)
    )
    assert (result.stored[SOURCE], result.repeated[SOURCE]) == (1, 3)
    assert [reject.reason for reject in result.refused] == [Reason.DIVERGENT]
    assert list_keys() == [*KEYS, ("new", 0)]
    with pytest.raises(errors.UniqueViolation):
        plain.execute(f"INSERT INTO {TABLE} SELECT * FROM {TABLE} WHERE id = 'a'")
