"""A document with NUL characters is stored, and every output shows it unchanged."""

import json
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client

from annals.configuration import env
from history.documents.exactjson import dumps
from history.documents.jsonb import to_store
from history.documents.record import ChangeType
from history.kinds.entities import ROOT
from history.retention.archive import parquet
from history.retention.archive.store import ArchiveStore as Files
from history.retention.archive.write import DayArchiver
from history.retention.plan import PartitionPolicy
from history.store.days import days
from history.store.days.window import Window
from tests.db.ingested import Ingested, find_faults, list_ids, list_quarantined, query, read_counts
from tests.db.partitioned import connect_plainly, execute_plans
from tests.db.store import Store
from tests.messages import make_value_with_data

UPDATE = ChangeType.UPDATE
NUL = {"a": "x\0y", "b\0": ["\0", {"c": 1}], "number": "17", "q": '"\\u0000', "s": "\u2400"}
BASE = "/api/v1/history/product-instance/A1"


def test_snapshot_with_nul_is_stored_and_compared_like_any_other(
    ingested: Ingested,
) -> None:
    text = dumps(NUL)
    turned = json.dumps(dict(reversed(NUL.items())), indent=1).encode()
    other_document = dumps({**NUL, "a": "xy\0"})
    ingested.write(make_value_with_data(text, id="n"), make_value_with_data(b"{}", id="o"))
    ingested.write(
        make_value_with_data(turned, id="n"), make_value_with_data(other_document, id="n")
    )
    assert list_ids() == ["n", "o"]
    assert [row["reason"] for row in list_quarantined()] == ["divergent_duplicate"]
    expected = {"next_offset": 4, "read": 4, "stored": 2, "repeated": 1}
    assert read_counts() == {**expected, "quarantined": 1}
    assert [row["value"] for row in query("SELECT value FROM search_key")] == ["17"]
    assert find_faults() == []


NOW = datetime.now(UTC)
OLD = NOW - timedelta(days=5)


@pytest.fixture
def store_with_nul(tables: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Store versions 0 and 1 of A1, five days apart, and configure an archive.

    The snapshots of both versions contain a NUL character.
    """
    with connect_plainly() as plain:
        for version, (moment, data) in enumerate(((OLD, NUL), (NOW, {**NUL, "a": "\0"}))):
            days.create_partition(plain, ROOT.table, moment.date())
            Store().add("A1", version, to_store(dumps(data)).decode(), moment, type=UPDATE)
    variables = {"ANNALS_DEMO": "true", "ANNALS_ARCHIVE_URL": str(tmp_path / "archive")}
    monkeypatch.setattr(settings, "ANNALS", env.read_settings(variables))
    return tmp_path


@pytest.fixture
def auditor(store_with_nul: Path, auditor: Client) -> Client:
    return auditor


def test_screens_show_nul_character(auditor: Client) -> None:
    auditor.force_login(User.objects.get(username="support"))
    for page in ("", "versions/0/", "state/", "compare/?from=0&to=1"):
        answer = auditor.get(f"/admin/history/product-instance/A1/{page}")
        assert answer.status_code == 200
        assert b"\0" not in answer.content
        page_text = answer.content.decode()
        assert "␀" in page_text or "\\u0000" in page_text
    assert "x␀y" in auditor.get("/admin/history/product-instance/A1/").content.decode()
    download = auditor.get("/admin/history/product-instance/A1/versions/0/?download=1")
    assert json.loads(download.content) == NUL


def test_filter_accepts_field_name_with_nul(auditor: Client) -> None:
    auditor.force_login(User.objects.get(username="support"))
    address = "/admin/history/product-instance/A1/"
    assert f"{address}field/?path=%2Fb%00" in auditor.get(f"{address}state/").content.decode()
    # This field never changed.
    assert auditor.get(f"{address}?path=%2Fb%00").context["groups"] == []
    assert len(auditor.get(f"{address}?path=%2Fa").context["groups"]) == 1
    assert auditor.get("/admin/history/product-instance/a%00b/").status_code == 404


@pytest.mark.parametrize("archived", [False, True])
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_exports_contain_nul_character(store_with_nul: Path, kind: str, archived: bool) -> None:
    if archived:
        policy = PartitionPolicy(Window.at(NOW, 3, 1), NOW.date(), None, 0)
        execute_plans(policy, archiver=DayArchiver(Files(str(store_with_nul / "archive"))))
    out = store_with_nul / "out"
    until = OLD + timedelta(days=1)
    call_command(
        "export",
        "--entity",
        "product-instance",
        "--format",
        kind,
        "--output",
        str(out),
        "--from",
        f"{OLD:%Y-%m-%d}",
        "--to",
        f"{until:%Y-%m-%d}",
        stderr=StringIO(),
    )
    [file] = [path for path in out.rglob(f"*.{kind}") if path.is_file()]
    with file.open("rb") as stream:
        if kind == "jsonl":
            document = json.loads(stream.read())["data"]
        else:
            [row] = parquet.read_rows(stream)
            document = json.loads(row[-1])
    assert document == NUL
