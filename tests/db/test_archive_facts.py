"""What a manifest says of its files is not believed: a file is what its bytes and rows are."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet as pq

from history.archive import parquet, read, write
from history.archive.manifest import FinishedFiles
from history.archive.scrubbing import Pace, scrub, waiting
from history.archive.store import Store
from history.archive.write import Archiver
from history.canonical import Connection
from history.models import ArchivedDay
from history.partitions.maintain import maintain
from tests.db.partitioned import names, policy, raw
from tests.db.test_archive_generations import FOLDER, NAME, PRODUCT, fill, maintained
from tests.db.test_archive_origin import decide, place, store
from tests.shape import shaped

__all__ = ["place", "store"]
pytestmark = pytest.mark.usefixtures("tables")
IDS = ("a1", "b2", "c3")


class Interrupted(Archiver):
    """A run that archives and notes, and does not come to the drop."""

    def archive(self, connection: Connection, table: str, day: date) -> None:
        super().archive(connection, table, day)
        raise OSError("the run ends here")


@pytest.fixture
def written(store: Store, place: Path) -> Path:
    """The folder of a day that is archived and not dropped yet."""
    with raw() as plain:
        fill(plain, *IDS)
    maintain(policy(), archiver=Interrupted(store))
    return place / FOLDER


def forge(folder: Path, **changed: Any) -> None:
    """Write something else into the manifest of a day and into what it says of its file."""
    path = folder / "manifest.json"
    said = json.loads(path.read_text())
    for name, value in changed.items():
        (said if name in said else said["files"][0])[name] = value
    path.write_text(json.dumps(said))


def found(store: Store) -> list[int]:
    return [len(read.versions(store, PRODUCT, id_)) for id_ in IDS]


def fault(store: Store) -> str:
    (checked,) = scrub(store, waiting(), Pace())
    return checked.fault or ""


@pytest.mark.parametrize("noted", [True, False])
@pytest.mark.parametrize(
    "changed",
    [{"first": "zzz", "last": "zzz"}, {"archivedAt": "2999-01-01T00:00:00Z"}],
)
def test_a_forged_manifest_hides_no_archived_row(
    store: Store, written: Path, changed: Mapping[str, Any], noted: bool
) -> None:
    said = ArchivedDay.objects.values_list("archived_at", flat=True).get()
    if not noted:
        ArchivedDay.objects.all().delete()  # the run was interrupted before its note
    forge(written, **changed)
    assert NAME in maintained(store)
    assert NAME not in names()
    assert found(store) == [1, 1, 1]
    assert fault(store) == ""
    assert ArchivedDay.objects.get().archived_at.year == said.year


def test_verify_finds_wrong_ids_of_a_file_and_adopt_corrects_them(
    store: Store, written: Path
) -> None:
    """As an earlier release could note them."""
    assert NAME in maintained(store)
    forge(written, first="zzz", last="zzz")
    assert "a1 to c3" in fault(store)
    files = json.loads((written / "manifest.json").read_text())["files"]
    ArchivedDay.objects.update(files=files)
    assert found(store) == [0, 0, 0]
    assert "a1 to c3" in fault(store)
    code, said = decide("adopt", "--why", "the ids were forged", "--json")
    [done] = shaped("partitions adopt", said)
    assert (code, done["failed"]) == (0, None)
    assert found(store) == [1, 1, 1]
    assert fault(store) == ""


def test_verify_compares_the_files_that_the_database_noted(store: Store, written: Path) -> None:
    assert NAME in maintained(store)
    (file,) = ArchivedDay.objects.get().files
    ArchivedDay.objects.update(files=[{**file, "last": "a1"}])
    assert "than the database" in fault(store)


def test_a_footer_that_hides_its_rows_is_damage(store: Store, written: Path) -> None:
    """The same rows in two row groups, the second with the statistics of the first."""
    (path,) = written.glob("*.parquet")
    table = pq.read_table(path)
    with pq.ParquetWriter(path, table.schema, compression="none") as writer:
        writer.write_table(table.slice(0, 1))
        writer.write_table(table.slice(1))
    whole = path.read_bytes()
    end = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    footer = whole[end:].replace(b"b2", b"a0").replace(b"c3", b"a1")
    path.write_bytes(whole[:end] + footer)
    name = f"{FOLDER}/{path.name}"
    with store.open(name) as opened:
        assert [row[0] for row in parquet.rows(opened)] == list(IDS)
    sha256, size = store.sha256(name)
    forge(written, sha256=sha256, bytes=size)
    ArchivedDay.objects.all().delete()
    assert NAME in maintained(store)
    assert found(store) == [1, 1, 1]


@pytest.mark.parametrize("forged", ["../../elsewhere.parquet", "/etc/passwd", "part.txt"])
def test_a_manifest_names_only_files_of_its_day(store: Store, written: Path, forged: str) -> None:
    forge(written, name=f"{FOLDER}/{forged}")
    outcome = maintain(policy(), archiver=Archiver(store))
    [(_, said)] = outcome.broken
    assert "not those of this day" in said
    assert NAME in names()
    assert decide("forget", "--why", "nobody can use it")[0] == 0
    assert NAME in maintained(store)
    assert found(store) == [1, 1, 1]


def test_a_manifest_names_no_file_twice(store: Store, written: Path) -> None:
    path = written / "manifest.json"
    said = json.loads(path.read_text())
    path.write_text(json.dumps({**said, "files": said["files"] * 2, "rows": 6}))
    [(_, why)] = maintain(policy(), archiver=Archiver(store)).broken
    assert "not those of this day" in why


def _lie(file: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**file, "first": "zzz", "last": "zzz"}]


@pytest.mark.parametrize(
    "lie", [_lie, lambda file: [file, file], lambda file: [{**file, "name": "../x.parquet"}]]
)
def test_the_progress_of_an_interrupted_run_is_not_believed(
    store: Store,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    lie: Callable[[dict[str, Any]], list[dict[str, Any]]],
) -> None:
    monkeypatch.setattr(write, "FILE_ROWS", 2)

    def stop(store: Store, table: str, day: date, progress: FinishedFiles) -> None:
        before(store, table, day, progress)
        raise OSError("the run ends here")

    before = write.manifest.save_progress
    monkeypatch.setattr(write.manifest, "save_progress", stop)
    with raw() as plain:
        fill(plain, *IDS)
    maintain(policy(), archiver=Archiver(store))
    monkeypatch.setattr(write.manifest, "save_progress", before)
    path = place / FOLDER / "progress.json"
    said = json.loads(path.read_text())
    path.write_text(json.dumps({**said, "files": lie(said["files"][0])}))
    assert NAME in maintained(store)
    assert found(store) == [1, 1, 1]
    assert fault(store) == ""
