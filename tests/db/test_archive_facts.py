"""What a manifest says of its files is not believed: a file is what its bytes and rows are."""

import json
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from history.archive import read
from history.archive.scrubbing import scrub, waiting
from history.archive.store import Store
from history.archive.write import DayArchiver
from history.daily.canonical import Connection
from history.models import ArchivedDay
from history.partitions.maintain import maintain
from tests.db.partitioned import names, policy, raw
from tests.db.test_archive_generations import FOLDER, NAME, PRODUCT, fill, maintained
from tests.db.test_archive_origin import decide, place, store

__all__ = ["place", "store"]
pytestmark = pytest.mark.usefixtures("tables")
IDS = ("a1", "b2", "c3")


class Interrupted(DayArchiver):
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
    (checked,) = scrub(store, waiting())
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


def test_verify_compares_the_files_that_the_database_noted(store: Store, written: Path) -> None:
    assert NAME in maintained(store)
    (file,) = ArchivedDay.objects.get().files
    ArchivedDay.objects.update(files=[{**file, "last": "a1"}])
    assert "than the database" in fault(store)


@pytest.mark.parametrize("forged", ["../../elsewhere.parquet", "/etc/passwd", "part.txt", None])
def test_a_manifest_names_only_files_of_its_day_and_each_once(
    store: Store, written: Path, forged: str | None
) -> None:
    if forged is None:
        files = json.loads((written / "manifest.json").read_text())["files"]
        forge(written, files=files * 2, rows=6)
    else:
        forge(written, name=f"{FOLDER}/{forged}")
    outcome = maintain(policy(), archiver=DayArchiver(store))
    [(_, said)] = outcome.broken
    assert "not those of this day" in said
    assert NAME in names()
    assert decide("forget", "--why", "nobody can use it")[0] == 0
    assert NAME in maintained(store)
    assert found(store) == [1, 1, 1]
