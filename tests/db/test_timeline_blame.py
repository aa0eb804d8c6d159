"""Blame, the history of one field, and the state at a moment."""

from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.db import connection

from history import timeline
from history.documents.exactjson import Json, SnapshotCache
from history.documents.record import ChangeType
from history.kinds.entities import ROOT
from history.timeline import NoVersionError, compose
from history.timeline.sources import statements
from tests.db.store import HOST, Store, record_queries


def blame_numbers(id: str = "A1") -> dict[str, int]:
    return {leaf.path: leaf.origin.version for leaf in timeline.blame_leaves(HOST, ROOT, id).leaves}


def test_blame_is_inexact_for_change_after_a_missing_version(store: Store) -> None:
    store.add("A1", 3, {"a": 1, "b": 1, "c": 1}, 3)
    store.add("A1", 4, {"a": 1, "b": 2, "c": 1}, 4)
    store.add("A1", 7, {"a": 1, "b": 2, "c": 2}, 7)
    leaves = {
        leaf.path: (leaf.origin.version, leaf.origin.exact)
        for leaf in timeline.blame_leaves(HOST, ROOT, "A1").leaves
    }
    assert leaves == {"/a": (3, False), "/b": (4, True), "/c": (7, False)}


def test_blame_works_for_deleted_document_and_for_deeply_nested_snapshot(store: Store) -> None:
    store.add("A1", 0, {"n": 1}, 0)
    store.add("A1", 1, "null", 1, type=ChangeType.DELETE)
    assert blame_numbers() == {"": 1}
    deep = '{"a":' * 400 + "1" + "}" * 400
    store.add("B1", 0, deep, 0)
    store.add("B1", 1, deep.replace("1", "2"), 1)
    assert list(blame_numbers("B1").values()) == [1]
    with pytest.raises(NoVersionError):
        timeline.blame_leaves(HOST, ROOT, "nobody")


def test_next_page_of_field_history_is_correct_when_first_version_of_the_page_was_removed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in range(4):
        store.add("A1", version, {"rate": version}, version)
    first = timeline.fetch_field_history(HOST, ROOT, "A1", "/rate", 1)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM product_instance_aud WHERE version = 2")
    second_page = timeline.fetch_field_history(HOST, ROOT, "A1", "/rate", 50, first.next_token)
    assert [value.value for value in second_page.values] == [1, 0]


@pytest.mark.parametrize("versions", [range(0, 1200, 2), range(600)], ids=["gaps", "dense"])
def test_blame_reads_each_version_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, versions: range
) -> None:
    for version in versions:
        store.add("A1", version, {"old": 1, "new": version}, version / 60)
    read: list[int] = []
    plain = statements.fetch_rows

    def fetch(*args: Any) -> list[tuple[Any, ...]]:
        rows = plain(*args)
        read.append(len(rows))
        return rows

    monkeypatch.setattr(statements, "fetch_rows", fetch)
    assert blame_numbers() == {"/old": 0, "/new": versions[-1]}
    # It reads all version keys, and each version once; only the last one of a batch is read again.
    assert sum(read) <= 2 * len(versions) + 10
    assert len(read) <= 6


def test_blame_parses_a_version_once_when_many_values_come_from_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With an archive, blame reads the list of archived days, but no file.
    archived = msgspec.structs.replace(settings.ANNALS, archive_url="/nowhere")
    monkeypatch.setattr(settings, "ANNALS", archived)
    store.add("A1", 7, {f"field{number}": number for number in range(200)}, 0)
    store.add("A2", 7, {"field0": 0}, 0)
    parsed: list[bytes] = []

    class RecordingCache(SnapshotCache):
        def parse(self, text: bytes, compared_with: bytes = b"") -> Json:
            parsed.append(text)
            return super().parse(text, compared_with)

    monkeypatch.setattr(compose, "SnapshotCache", RecordingCache)
    statement_counts: dict[str, int] = {}
    for id in ("A2", "A1"):
        blame_numbers(id)  # loads the labels
        parsed.clear()
        with record_queries(monkeypatch) as statements:
            assert set(blame_numbers(id).values()) == {7}
        statement_counts[id] = len(statements)
        assert len(parsed) == 1  # the newest version, which is shown
    assert statement_counts["A1"] == statement_counts["A2"]
