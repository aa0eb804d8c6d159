"""A timeline with archive=true equals the timeline before days were archived and dropped."""

import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from annals.configuration import env
from history.kinds.entities import BY_NAME, ROOT
from history.models import FieldLabel
from history.policy import masking
from history.retention.archive.restore import restore_day
from history.retention.archive.store import ArchiveStore
from history.retention.archive.write import DayArchiver
from history.retention.plan import PartitionPolicy
from history.store.catalogue import labels
from history.store.days import days
from history.store.versions import FetchedVersions
from history.timeline import Absence, NoVersionError, TimelineQuery, Version, fetch_page
from history.timeline.sources.tables import TableSource
from tests.db.partitioned import connect_plainly, execute_plans
from tests.db.store import HOST
from tests.db.store import Store as Rows

pytestmark = pytest.mark.usefixtures("tables")

NOW = datetime.now(UTC)
COUNT = 24
URL = "/api/v1/history/product-instance/A1"


def use_archive(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    names = {f"ANNALS_{name.upper()}": value for name, value in variables.items()}
    monkeypatch.setattr(settings, "ANNALS", env.read_settings({"ANNALS_DEMO": "true", **names}))


def fill_store() -> None:
    """Store COUNT versions of A1 over twelve days, and the neighbours A0 and A2.

    Version 7 is missing, and version 9 has the moment of version 10. The neighbours put A1 into the
    middle of the archived files.
    """
    rows: list[Any] = [(f"A{n}", 0, {}, NOW - timedelta(days=8)) for n in (0, 2)]
    for version in range(COUNT):
        moment = NOW - timedelta(hours=12 * (COUNT - version) - 1)
        if version == 9:
            moment += timedelta(hours=12)
        data = {"rate": f"{version / 7:.3f}", "createdAt": str(NOW - timedelta(days=30))}
        if version != 7:
            rows.append(("A1", version, data, moment))
    with connect_plainly() as plain:
        for row in rows:
            days.create_partition(plain, ROOT.table, row[-1].date())
            Rows().add(*row, author="ab"[row[1] % 2])


def list_all_pages(**fields: Any) -> list[Version]:
    """Return the versions on all pages of the timeline of A1.

    In the returned versions, `nothing_older_reason` is replaced by None.

    Args:
        fields: More fields of the TimelineQuery.
    """
    versions: list[Version] = []
    token = None
    while True:
        page = fetch_page(
            HOST, TimelineQuery(entity=ROOT, id="A1", page_size=4, page_token=token, **fields)
        )
        versions += (
            msgspec.structs.replace(version, nothing_older_reason=None) for version in page.versions
        )
        token = page.next_token
        if token is None:
            return versions


@pytest.fixture
def store(tmp_path: Path) -> ArchiveStore:
    return ArchiveStore(str(tmp_path))


@pytest.fixture
def timeline_before_archiving(tables: None) -> list[Version]:
    """Store all versions, and return the timeline of A1 before any day is archived."""
    fill_store()
    return list_all_pages()


@pytest.fixture
def half_archived(
    timeline_before_archiving: list[Version],
    store: ArchiveStore,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> list[Version]:
    """Archive and drop half of the days, and return the timeline of A1 from before the drop."""
    use_archive(monkeypatch, retention_days="5", archive_url=str(tmp_path))
    outcome = execute_plans(PartitionPolicy.at(NOW), archiver=DayArchiver(store))
    assert len(outcome.dropped) > 5
    return timeline_before_archiving


def test_timeline_with_archive_has_all_versions(half_archived: list[Version]) -> None:
    """tests/oracle and tests/db/test_sources.py check all other reads of the archive."""
    assert len(half_archived) == COUNT - 1
    assert list_all_pages(archive=True) == half_archived
    assert 5 < len(list_all_pages()) < COUNT - 6


def test_lowest_stored_version_says_that_older_versions_are_archived(
    half_archived: list[Version], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    query = TimelineQuery(entity=ROOT, id="A1", page_size=500)
    assert fetch_page(HOST, query).versions[-1].nothing_older_reason is Absence.ARCHIVED
    complete = dataclasses.replace(query, archive=True)
    assert fetch_page(HOST, complete).versions[-1].nothing_older_reason is None
    use_archive(monkeypatch, retention_days="5")
    assert fetch_page(HOST, query).versions[-1].nothing_older_reason is Absence.REMOVED


def test_page_is_complete_when_restored_day_is_dropped_while_page_is_read(
    half_archived: list[Version], store: ArchiveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = (NOW - timedelta(days=8)).date()
    with connect_plainly() as plain:
        restore_day(plain, store, ROOT, day)
    read_page = TableSource.fetch_page

    def drop_day_and_fetch(*args: Any) -> FetchedVersions:
        with connect_plainly() as plain:
            plain.execute(f"DROP TABLE IF EXISTS {days.build_partition_name(ROOT.table, day)}")
        return read_page(*args)

    monkeypatch.setattr(TableSource, "fetch_page", drop_day_and_fetch)
    versions = fetch_page(
        HOST, TimelineQuery(entity=ROOT, id="A1", page_size=500, archive=True)
    ).versions
    assert [item.version for item in versions] == [item.version for item in half_archived]


def test_document_that_only_the_archive_has_is_shown(half_archived: list[Version]) -> None:
    with pytest.raises(NoVersionError):
        fetch_page(HOST, TimelineQuery(entity=ROOT, id="A0"))
    (only,) = fetch_page(HOST, TimelineQuery(entity=ROOT, id="A0", archive=True)).versions
    assert (only.version, only.nothing_older_reason) == (0, None)
    with pytest.raises(NoVersionError, match="archive"):
        fetch_page(HOST, TimelineQuery(entity=ROOT, id="nobody", archive=True))
    with pytest.raises(NoVersionError):
        fetch_page(HOST, TimelineQuery(entity=BY_NAME["product-car"], id="A1", archive=True))


def test_api_reads_archive_only_when_parameter_archive_is_true(
    half_archived: list[Version], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = APIClient()
    client.force_authenticate(User(username="auditor", is_active=True, is_superuser=True))
    stored = client.get(URL, {"pageSize": 500}).json()["data"]["history"]
    assert stored[-1]["olderVersions"] == "inArchive"
    answer = client.get(URL, {"pageSize": 500, "archive": "true"})
    versions = answer.json()["data"]["history"]
    assert [item["version"] for item in versions] == [item.version for item in half_archived]
    assert client.get(URL, {"archive": "yes"}).status_code == 400
    for file in tmp_path.rglob("*.parquet"):
        file.write_bytes(b"not a Parquet file")
    answer = client.get(URL, {"archive": "true"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "archive_unavailable")
    use_archive(monkeypatch, retention_days="5")
    answer = client.get(URL, {"archive": "true"})
    assert (answer.status_code, answer.json()["error"]["parameter"]) == (400, "archive")


def test_archived_versions_are_masked_like_stored_versions(
    half_archived: list[Version],
) -> None:
    FieldLabel.objects.update_or_create(
        entity="", path="/rate", defaults={"russian": "x", "sensitive": True}
    )
    labels.forget_catalogue()
    try:
        all_pages = list_all_pages(archive=True)
    finally:
        FieldLabel.objects.filter(entity="", path="/rate").delete()
        labels.forget_catalogue()
    assert len(all_pages) == len(half_archived)
    assert all(masking.is_token(version.data["rate"]) for version in all_pages)  # type: ignore[call-overload,index]
    assert not any(b'"0.143"' in version.snapshot for version in all_pages)
    assert [v.changes != () for v in all_pages] == [v.changes != () for v in half_archived]
