"""`partitions verify --archive` finds every damage to the archive, each day by itself."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.conf import settings

from annals.observe import metrics
from history.archive import manifest, parquet, scrubbing
from history.archive.manifest import Manifest
from history.archive.parquet import Writer, row_hash
from history.archive.scrubbing import scrub, waiting
from history.archive.store import Store
from history.archive.write import DayArchiver
from history.daily import days
from history.daily.canonical import Digest
from history.entities import ROOT
from history.models import ArchivedDay, DaySeal
from history.partitions.maintain import maintain
from history.seals.seal import seal
from tests.db.partitioned import TABLE, day, insert, policy, raw, run
from tests.db.test_export import fill
from tests.shape import shaped

FIRST, MIDDLE, LAST = day(-7), day(-6), day(-5)


@pytest.fixture(autouse=True)
def archive(tables: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Three archived days, the first two of them sealed."""
    changed = msgspec.structs.replace(settings.ANNALS, archive_url=str(tmp_path))
    monkeypatch.setattr(settings, "ANNALS", changed)
    fill(FIRST, MIDDLE, LAST)
    with raw() as plain:
        for each in (FIRST, MIDDLE):
            seal(plain, ROOT, each)
    leave(Store(str(tmp_path)))
    return Store(str(tmp_path))


def evening(of: date) -> datetime:
    return datetime(of.year, of.month, of.day, 23, tzinfo=UTC)


def leave(archive: Store) -> None:
    """Let maintain archive and drop what is before retention."""
    assert maintain(policy(keep=3), archiver=DayArchiver(archive)).exit_code == 0


def results(archive: Store) -> dict[date, str | None]:
    """The fault of each day."""
    return {found.day: found.fault for found in scrub(archive, waiting())}


def file_of(path: Path, of: date) -> Path:
    (found,) = (path / TABLE / str(of)).glob("*.parquet")
    return found


def test_a_sound_archive_has_no_fault(archive: Store) -> None:
    found = list(scrub(archive, waiting()))
    assert [(each.day, each.rows, each.fault, each.note) for each in found] == [
        (FIRST, 4, None, "1 file, manifest and seal"),
        (MIDDLE, 4, None, "1 file, manifest and seal"),
        (LAST, 4, None, "1 file, manifest; the day has no seal"),
    ]
    assert not ArchivedDay.objects.filter(checked_at=None).exists()
    assert [each.bytes for each in found] == [
        kept.file_bytes for kept in ArchivedDay.objects.order_by("day")
    ]


def flip(path: Path) -> None:
    file = file_of(path, MIDDLE)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def remove(path: Path) -> None:
    file_of(path, MIDDLE).unlink()


def manifest_of(path: Path) -> Path:
    return path / TABLE / str(MIDDLE) / "manifest.json"


def become_a_folder(path: Path) -> None:
    file = file_of(path, MIDDLE)
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    "damage, fault",
    [
        (flip, "has other bytes than its manifest says"),
        (remove, "is missing"),
        (become_a_folder, "cannot be read"),
        (lambda path: manifest_of(path).unlink(), "the archive has no manifest of the day"),
        (lambda path: manifest_of(path).write_text("{"), "cannot be read"),
    ],
)
def test_damage_is_found_and_the_other_days_are_read(
    archive: Store, tmp_path: Path, damage: Callable[[Path], None], fault: str
) -> None:
    damage(tmp_path)
    found = results(archive)
    assert fault in str(found.pop(MIDDLE))
    assert found == {FIRST: None, LAST: None}


def forge(archive: Store, **changed: Any) -> Manifest:
    """Another author in each archived row of a day, with a manifest for these rows."""
    known = manifest.load(archive, TABLE, MIDDLE)
    assert known is not None
    (file,) = known.files
    with archive.open(file.name) as opened:
        rows = [(*row[:4], "forged", *row[5:]) for row in parquet.rows(opened)]
    with archive.write(file.name) as sink:
        writer = Writer(sink, ROOT)
        for row in rows:
            writer.add(row)
        writer.close()
    whole = Digest()
    for row in rows:
        whole.add(row[0], row[1], row_hash(row))
    digest = whole.finish()
    sha256, size = archive.sha256(file.name)
    forged = msgspec.structs.replace(
        file, sha256=sha256, bytes=size, digest=changed.get("file_digest", whole.ranges[0].digest)
    )
    made = msgspec.structs.replace(
        known, files=(forged,), digest=changed.get("digest", digest), rows=len(rows)
    )
    manifest.save(archive, made)
    return made


def test_forged_rows_are_found_by_manifest_database_and_seal(archive: Store) -> None:
    known = manifest.load(archive, TABLE, MIDDLE)
    assert known is not None
    kept = {"file_digest": known.files[0].digest, "digest": known.digest}
    forge(archive, **kept)
    assert "has other rows than its manifest says" in str(results(archive)[MIDDLE])
    forge(archive, digest=known.digest)
    assert results(archive)[MIDDLE] == "the rows of the files are not those of the manifest"
    forged = forge(archive)
    assert results(archive)[MIDDLE] == (
        "the manifest names 4 rows, the database 4; their digests differ"
    )
    ArchivedDay.objects.filter(day=MIDDLE).update(digest=forged.digest)
    assert results(archive)[MIDDLE] == "the archived rows are not the sealed rows"


def test_each_run_goes_on_where_the_last_one_stopped(archive: Store, tmp_path: Path) -> None:
    remove(tmp_path)
    words = ("verify", "--archive", "--seconds", "0", "--json")

    def once() -> tuple[int, str]:
        code, out, _ = run(*words)
        (found,) = shaped("partitions verify --archive", out)["days"]
        return code, found["day"]

    assert once() == (0, str(FIRST))
    assert once() == (1, str(MIDDLE))
    # A day with a fault comes first until it is sound, and the exit code stays 1.
    assert once() == (1, str(MIDDLE))
    code, _, err = run("verify", "--archive", "--seconds", "0", str(LAST))
    assert (code, err) == (0, "")
    ArchivedDay.objects.filter(day=MIDDLE).delete()
    assert once() == (0, str(FIRST))
    assert once() == (0, str(LAST))
    assert once() == (0, str(FIRST))


def test_the_command_says_what_it_read(archive: Store, tmp_path: Path) -> None:
    code, out, err = run("verify", "--archive", "--entity", "product-car")
    assert (code, out) == (
        0,
        "0 archived days read (0 bytes). Of 0 days, 0 have a fault, 0 were never read.\n",
    )
    flip(tmp_path)
    code, out, err = run("verify", "--archive")
    assert (code, "3 archived days read" in out, "1 has a fault" in out) == (1, True, True)
    assert out.startswith(f"{TABLE} {MIDDLE}: {TABLE}/{MIDDLE}/")
    assert TABLE not in err


def test_a_day_that_is_forgotten_meanwhile_is_passed_over(archive: Store) -> None:
    found = scrub(archive, waiting())
    assert next(found).day == FIRST
    ArchivedDay.objects.filter(day=MIDDLE).delete()
    assert [each.day for each in found] == [LAST]


def test_a_generation_that_is_replaced_meanwhile_is_not_a_fault(
    archive: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = scrubbing.damage

    def replace_first(store: Store, *rest: Any) -> str | None:
        monkeypatch.setattr(scrubbing, "damage", real)
        fill(FIRST)
        with raw() as plain:
            insert(plain, evening(FIRST), "new")
        leave(archive)
        return real(store, *rest)

    monkeypatch.setattr(scrubbing, "damage", replace_first)
    found = {each.day: each for each in scrub(archive, waiting())}
    # The rows of the second generation came without a message, so its seal does not fit.
    assert found[FIRST].rows == 5
    assert found[FIRST].fault == "the archived rows are not the sealed rows"
    assert found[MIDDLE].fault is None


def test_a_generation_that_an_interrupted_run_left_is_not_a_fault(
    archive: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(LAST)
    with raw() as plain:
        insert(plain, evening(LAST), "new")

    def killed(*_: Any) -> None:
        raise OSError("killed")

    monkeypatch.setattr("history.archive.write.follow", killed)
    assert maintain(policy(keep=3), archiver=DayArchiver(archive)).exit_code == 2
    found = {each.day: each for each in scrub(archive, waiting())}
    assert (found[LAST].fault, "interrupted" in found[LAST].note) == (None, True)
    with raw() as plain:
        plain.execute(f"DROP TABLE {days.partition_name(TABLE, LAST)}")
    assert "the manifest names 5 rows, the database 4" in str(results(archive)[LAST])


def test_a_day_that_was_sealed_again_since_may_have_further_rows(archive: Store) -> None:
    fill(FIRST)
    with raw() as plain:
        insert(plain, evening(FIRST), "new")
        seal(plain, ROOT, FIRST)
    found = {each.day: each for each in scrub(archive, waiting())}
    assert found[FIRST].fault is None
    assert "an earlier seal" in found[FIRST].note
    with raw() as plain:
        plain.execute(f"DROP TABLE {days.partition_name(TABLE, FIRST)}")
    assert results(archive)[FIRST] == "the archived rows are not the sealed rows"
    assert DaySeal.objects.filter(day=FIRST).count() == 2


def test_the_metrics_count_days_with_a_fault(archive: Store, tmp_path: Path) -> None:
    def values() -> dict[str, float]:
        return {
            sample.name: sample.value for family in metrics.archive() for sample in family.samples
        }

    assert values() == {"annals_archive_days_faulty": 0}
    flip(tmp_path)
    results(archive)
    oldest = ArchivedDay.objects.order_by("checked_at").first()
    assert oldest is not None
    assert values() == {
        "annals_archive_days_faulty": 1,
        "annals_archive_oldest_check_timestamp_seconds": oldest.checked_at.timestamp(),
    }
    ArchivedDay.objects.all().delete()
    assert values() == {"annals_archive_days_faulty": 0}
