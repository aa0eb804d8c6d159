"""A timeline with archive=true is what it was before its old days left the store."""

import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from annals import env
from history import labels, masking
from history.archive.restore import restore
from history.archive.store import Store
from history.archive.write import DayArchiver
from history.daily import days
from history.entities import BY_NAME, ROOT
from history.models import FieldLabel
from history.partitions.maintain import maintain
from history.partitions.plan import Policy
from history.timeline import Absence, NoVersionError, Query, Version, page
from history.timeline.sources.tables import Tables
from history.versions import Read
from tests.db.partitioned import raw
from tests.db.store import HOST
from tests.db.store import Store as Rows

pytestmark = pytest.mark.usefixtures("tables")

NOW = datetime.now(UTC)
COUNT = 24
URL = "/api/v1/history/product-instance/A1"


def use(monkeypatch: pytest.MonkeyPatch, **given: str) -> None:
    names = {f"ANNALS_{name.upper()}": value for name, value in given.items()}
    monkeypatch.setattr(settings, "ANNALS", env.read({"ANNALS_DEMO": "true", **names}))


def fill() -> None:
    """A1: COUNT versions over twelve days, version 7 missing, 9 arrived with the time of 10;
    and a neighbour on both sides, so that A1 is in the middle of the files."""
    rows: list[Any] = [(f"A{n}", 0, {}, NOW - timedelta(days=8)) for n in (0, 2)]
    for version in range(COUNT):
        moment = NOW - timedelta(hours=12 * (COUNT - version) - 1)
        if version == 9:
            moment += timedelta(hours=12)
        data = {"rate": f"{version / 7:.3f}", "createdAt": str(NOW - timedelta(days=30))}
        if version != 7:
            rows.append(("A1", version, data, moment))
    with raw() as plain:
        for row in rows:
            days.create(plain, ROOT.table, row[-1].date())
            Rows().add(*row, author="ab"[row[1] % 2])


def everything(**asked: Any) -> list[Version]:
    """All pages of the timeline of A1, each version as shown but for `older`."""
    found: list[Version] = []
    token = None
    while True:
        shown = page(HOST, Query(entity=ROOT, id="A1", page_size=4, page_token=token, **asked))
        found += (msgspec.structs.replace(each, older=None) for each in shown.versions)
        token = shown.next_token
        if token is None:
            return found


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path))


@pytest.fixture
def before(tables: None) -> list[Version]:
    """The timeline while everything was still in the store."""
    fill()
    return everything()


@pytest.fixture
def archived(
    before: list[Version], store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> list[Version]:
    """Half of the days have left for the archive."""
    use(monkeypatch, retention_days="5", archive_url=str(tmp_path))
    outcome = maintain(Policy.at(NOW), archiver=DayArchiver(store))
    assert len(outcome.dropped) > 5
    return before


def test_the_archive_completes_a_timeline(archived: list[Version]) -> None:
    """Whatever is asked: tests/oracle, tests/db/test_sources.py."""
    assert len(archived) == COUNT - 1
    assert everything(archive=True) == archived
    assert 5 < len(everything()) < COUNT - 6


def test_the_lowest_stored_version_says_where_the_older_ones_are(
    archived: list[Version], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    query = Query(entity=ROOT, id="A1", page_size=500)
    assert page(HOST, query).versions[-1].older is Absence.ARCHIVED
    complete = dataclasses.replace(query, archive=True)
    assert page(HOST, complete).versions[-1].older is None
    use(monkeypatch, retention_days="5")
    assert page(HOST, query).versions[-1].older is Absence.REMOVED


def test_a_restored_day_leaves_while_a_page_is_read(
    archived: list[Version], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = (NOW - timedelta(days=8)).date()
    with raw() as plain:
        restore(plain, store, ROOT, day)
    read_page = Tables.page

    def leave(*given: Any) -> Read:
        with raw() as plain:
            plain.execute(f"DROP TABLE IF EXISTS {days.partition_name(ROOT.table, day)}")
        return read_page(*given)

    monkeypatch.setattr(Tables, "page", leave)
    shown = page(HOST, Query(entity=ROOT, id="A1", page_size=500, archive=True)).versions
    assert [each.version for each in shown] == [each.version for each in archived]


def test_only_the_archive_has_it(archived: list[Version]) -> None:
    with pytest.raises(NoVersionError):
        page(HOST, Query(entity=ROOT, id="A0"))
    (only,) = page(HOST, Query(entity=ROOT, id="A0", archive=True)).versions
    assert (only.version, only.older) == (0, None)
    with pytest.raises(NoVersionError, match="архиве"):
        page(HOST, Query(entity=ROOT, id="nobody", archive=True))
    with pytest.raises(NoVersionError):
        page(HOST, Query(entity=BY_NAME["product-car"], id="A1", archive=True))


def test_the_api_reads_the_archive_when_asked(
    archived: list[Version], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = APIClient()
    client.force_authenticate(User(username="auditor", is_active=True, is_superuser=True))
    stored = client.get(URL, {"pageSize": 500}).json()["data"]["history"]
    assert stored[-1]["olderVersions"] == "inArchive"
    answer = client.get(URL, {"pageSize": 500, "archive": "true"})
    found = answer.json()["data"]["history"]
    assert [each["version"] for each in found] == [each.version for each in archived]
    assert client.get(URL, {"archive": "yes"}).status_code == 400
    for file in tmp_path.rglob("*.parquet"):
        file.write_bytes(b"not a Parquet file")
    answer = client.get(URL, {"archive": "true"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "archive_unavailable")
    use(monkeypatch, retention_days="5")
    answer = client.get(URL, {"archive": "true"})
    assert (answer.status_code, answer.json()["error"]["parameter"]) == (400, "archive")


def test_archived_versions_are_masked_as_the_stored_ones_are(
    archived: list[Version],
) -> None:
    FieldLabel.objects.update_or_create(
        entity="", path="/rate", defaults={"russian": "x", "sensitive": True}
    )
    labels.forget()
    try:
        shown = everything(archive=True)
    finally:
        FieldLabel.objects.filter(entity="", path="/rate").delete()
        labels.forget()
    assert len(shown) == len(archived)
    assert all(masking.is_token(version.data["rate"]) for version in shown)  # type: ignore[call-overload,index]
    assert not any(b'"0.143"' in version.snapshot for version in shown)
    assert [v.changes != () for v in shown] == [v.changes != () for v in archived]
