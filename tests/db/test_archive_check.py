"""`partitions verify --archive` finds all damage to the archive, day by day."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.conf import settings

from annals.operations import metrics_page
from history.kinds.entities import ROOT
from history.models import ArchivedDay, DaySeal
from history.retention.archive import archive_check, manifest, parquet
from history.retention.archive.archive_check import check_archived_days, list_days_to_check
from history.retention.archive.manifest import Manifest
from history.retention.archive.parquet import ArchiveFileWriter, hash_row
from history.retention.archive.store import ArchiveStore
from history.retention.archive.write import DayArchiver
from history.retention.seals.seal import seal_day
from history.store.days import days
from history.store.days.canonical import DayDigest
from tests.command_shapes import parse_shaped
from tests.db.partitioned import (
    TABLE,
    connect_plainly,
    execute_plans,
    get_day,
    insert_version,
    make_policy,
    run_partitions,
)
from tests.db.test_export import fill

FIRST, MIDDLE, LAST = get_day(-7), get_day(-6), get_day(-5)


@pytest.fixture(autouse=True)
def archive(tables: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArchiveStore:
    """Return an archive with three days; the first two are sealed."""
    changed = msgspec.structs.replace(settings.ANNALS, archive_url=str(tmp_path))
    monkeypatch.setattr(settings, "ANNALS", changed)
    fill(FIRST, MIDDLE, LAST)
    with connect_plainly() as plain:
        for item in (FIRST, MIDDLE):
            seal_day(plain, ROOT, item)
    archive_and_drop_days(ArchiveStore(str(tmp_path)))
    return ArchiveStore(str(tmp_path))


def get_evening(of: date) -> datetime:
    return datetime(of.year, of.month, of.day, 23, tzinfo=UTC)


def archive_and_drop_days(archive: ArchiveStore, accept_changed: date | None = None) -> None:
    """Archive and drop the days older than retention, like `partitions maintain`."""
    result = execute_plans(make_policy(keep=3), DayArchiver(archive), accept_changed)
    assert result.exit_code == 0


def find_faults(archive: ArchiveStore) -> dict[date, str | None]:
    """Check all archived days, and return the fault of each day, or None for a sound day."""
    return {
        verdict.day: verdict.fault for verdict in check_archived_days(archive, list_days_to_check())
    }


def find_file(path: Path, of: date) -> Path:
    (file,) = (path / TABLE / str(of)).glob("*.parquet")
    return file


def test_archive_check_finds_no_fault_in_sound_archive(archive: ArchiveStore) -> None:
    verdicts = list(check_archived_days(archive, list_days_to_check()))
    assert [(item.day, item.rows, item.fault, item.note) for item in verdicts] == [
        (FIRST, 4, None, "1 file, manifest and seal"),
        (MIDDLE, 4, None, "1 file, manifest and seal"),
        (LAST, 4, None, "1 file, manifest; the day has no seal"),
    ]
    assert not ArchivedDay.objects.filter(checked_at=None).exists()
    assert [item.bytes for item in verdicts] == [
        archived_day.file_bytes for archived_day in ArchivedDay.objects.order_by("day")
    ]


def flip_bit(path: Path) -> None:
    file = find_file(path, MIDDLE)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def remove(path: Path) -> None:
    find_file(path, MIDDLE).unlink()


def get_manifest_path(path: Path) -> Path:
    return path / TABLE / str(MIDDLE) / "manifest.json"


def replace_by_folder(path: Path) -> None:
    file = find_file(path, MIDDLE)
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    "damage, fault",
    [
        (flip_bit, "has other bytes than its manifest says"),
        (remove, "is missing"),
        (replace_by_folder, "cannot be read"),
        (lambda path: get_manifest_path(path).unlink(), "the archive has no manifest of the day"),
        (lambda path: get_manifest_path(path).write_text("{"), "cannot be read"),
    ],
)
def test_archive_check_names_damaged_day_and_checks_other_days(
    archive: ArchiveStore, tmp_path: Path, damage: Callable[[Path], None], fault: str
) -> None:
    damage(tmp_path)
    faults = find_faults(archive)
    assert fault in str(faults.pop(MIDDLE))
    assert faults == {FIRST: None, LAST: None}


def forge_archived_rows(archive: ArchiveStore, **changed: Any) -> Manifest:
    """Give the archived rows of the day MIDDLE a false author, and write and return a manifest.

    The manifest matches the false rows, except for the digests in `changed`.

    Args:
        changed: `digest` for the digest of the day, `file_digest` for the digest of the file.
    """
    day_manifest = manifest.load_manifest(archive, TABLE, MIDDLE)
    assert day_manifest is not None
    (file,) = day_manifest.files
    with archive.open(file.name) as opened:
        rows = [(*row[:4], "forged", *row[5:]) for row in parquet.read_rows(opened)]
    with archive.write(file.name) as sink:
        writer = ArchiveFileWriter(sink, ROOT)
        for row in rows:
            writer.add(row)
        writer.close()
    whole = DayDigest()
    for row in rows:
        whole.add(row[0], row[1], hash_row(row))
    digest = whole.finish()
    sha256, size = archive.compute_sha256(file.name)
    forged = msgspec.structs.replace(
        file, sha256=sha256, bytes=size, digest=changed.get("file_digest", whole.ranges[0].digest)
    )
    new_manifest = msgspec.structs.replace(
        day_manifest, files=(forged,), digest=changed.get("digest", digest), rows=len(rows)
    )
    manifest.save_manifest(archive, new_manifest)
    return new_manifest


def test_archive_check_finds_forged_rows(archive: ArchiveStore) -> None:
    day_manifest = manifest.load_manifest(archive, TABLE, MIDDLE)
    assert day_manifest is not None
    digests = {"file_digest": day_manifest.files[0].digest, "digest": day_manifest.digest}
    forge_archived_rows(archive, **digests)
    assert "has other rows or ids than its manifest says" in str(find_faults(archive)[MIDDLE])
    forge_archived_rows(archive, digest=day_manifest.digest)
    assert (
        find_faults(archive)[MIDDLE]
        == "the rows of the files are not the rows that the manifest describes"
    )
    forged = forge_archived_rows(archive)
    assert find_faults(archive)[MIDDLE] == (
        "the manifest names 4 rows, the database 4, and the digests differ"
    )
    ArchivedDay.objects.filter(day=MIDDLE).update(digest=forged.digest)
    assert find_faults(archive)[MIDDLE] == "the archived rows are not the sealed rows"


def test_archive_check_continues_after_the_day_that_was_checked_last(
    archive: ArchiveStore, tmp_path: Path
) -> None:
    remove(tmp_path)
    words = ("verify", "--archive", "--seconds", "0", "--json")

    def verify_once() -> tuple[int, str]:
        code, out, _ = run_partitions(*words)
        (entry,) = parse_shaped("partitions verify --archive", out)["days"]
        return code, entry["day"]

    assert verify_once() == (0, str(FIRST))
    assert verify_once() == (1, str(MIDDLE))
    # A day with a fault is checked first in each run until it is sound, and the exit code stays 1.
    assert verify_once() == (1, str(MIDDLE))
    code, _, err = run_partitions("verify", "--archive", "--seconds", "0", str(LAST))
    assert (code, err) == (0, "")
    ArchivedDay.objects.filter(day=MIDDLE).delete()
    assert verify_once() == (0, str(FIRST))
    assert verify_once() == (0, str(LAST))
    assert verify_once() == (0, str(FIRST))


def test_archive_check_prints_numbers_of_days_and_faults(
    archive: ArchiveStore, tmp_path: Path
) -> None:
    code, out, err = run_partitions("verify", "--archive", "--entity", "product-car")
    assert (code, out) == (
        0,
        "0 archived days read (0 bytes). Of 0 days, 0 have a fault, 0 were never read.\n",
    )
    flip_bit(tmp_path)
    code, out, err = run_partitions("verify", "--archive")
    assert (code, "3 archived days read" in out, "1 has a fault" in out) == (1, True, True)
    assert out.startswith(f"{TABLE} {MIDDLE}: {TABLE}/{MIDDLE}/")
    assert TABLE not in err


def test_archive_check_skips_day_that_is_removed_from_the_archive_during_the_check(
    archive: ArchiveStore,
) -> None:
    verdicts = check_archived_days(archive, list_days_to_check())
    assert next(verdicts).day == FIRST
    ArchivedDay.objects.filter(day=MIDDLE).delete()
    assert [item.day for item in verdicts] == [LAST]


def test_archive_check_reads_new_files_when_day_is_rewritten_during_the_check(
    archive: ArchiveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = archive_check.find_damage

    def replace_first(store: ArchiveStore, *args: Any) -> str | None:
        monkeypatch.setattr(archive_check, "find_damage", real)
        fill(FIRST)
        with connect_plainly() as plain:
            insert_version(plain, get_evening(FIRST), "new")
        archive_and_drop_days(archive, accept_changed=FIRST)
        return real(store, *args)

    monkeypatch.setattr(archive_check, "find_damage", replace_first)
    verdicts = {
        verdict.day: verdict for verdict in check_archived_days(archive, list_days_to_check())
    }
    # Generation 2 has a row that no message brought, so the rows do not match the seal.
    assert verdicts[FIRST].rows == 5
    assert verdicts[FIRST].fault == "the archived rows are not the sealed rows"
    assert verdicts[MIDDLE].fault is None


def test_archive_check_accepts_files_that_an_interrupted_run_wrote_but_did_not_record(
    archive: ArchiveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(LAST)
    with connect_plainly() as plain:
        insert_version(plain, get_evening(LAST), "new")

    def raise_killed(*_: Any) -> None:
        raise OSError("killed")

    monkeypatch.setattr("history.retention.archive.write.seal_archived_rows", raise_killed)
    assert execute_plans(make_policy(keep=3), archiver=DayArchiver(archive)).exit_code == 2
    verdicts = {
        verdict.day: verdict for verdict in check_archived_days(archive, list_days_to_check())
    }
    assert (verdicts[LAST].fault, "interrupted" in verdicts[LAST].note) == (None, True)
    with connect_plainly() as plain:
        plain.execute(f"DROP TABLE {days.build_partition_name(TABLE, LAST)}")
    assert "the manifest names 5 rows, the database 4" in str(find_faults(archive)[LAST])


def test_archive_check_accepts_files_that_match_an_earlier_seal_while_table_has_later_rows(
    archive: ArchiveStore,
) -> None:
    fill(FIRST)
    with connect_plainly() as plain:
        insert_version(plain, get_evening(FIRST), "new")
        seal_day(plain, ROOT, FIRST)
    verdicts = {
        verdict.day: verdict for verdict in check_archived_days(archive, list_days_to_check())
    }
    assert verdicts[FIRST].fault is None
    assert "an earlier seal" in verdicts[FIRST].note
    with connect_plainly() as plain:
        plain.execute(f"DROP TABLE {days.build_partition_name(TABLE, FIRST)}")
    assert find_faults(archive)[FIRST] == "the archived rows are not the sealed rows"
    assert DaySeal.objects.filter(day=FIRST).count() == 2


def test_archive_check_metrics_count_days_with_fault(archive: ArchiveStore, tmp_path: Path) -> None:
    def read_values() -> dict[str, float]:
        return {
            sample.name: sample.value
            for family in metrics_page.report_archive()
            for sample in family.samples
        }

    assert read_values() == {"annals_archive_days_faulty": 0}
    flip_bit(tmp_path)
    find_faults(archive)
    oldest = ArchivedDay.objects.order_by("checked_at").first()
    assert oldest is not None
    assert read_values() == {
        "annals_archive_days_faulty": 1,
        "annals_archive_oldest_check_timestamp_seconds": oldest.checked_at.timestamp(),
    }
    ArchivedDay.objects.all().delete()
    assert read_values() == {"annals_archive_days_faulty": 0}
