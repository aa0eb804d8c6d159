"""All neighbouring versions of real documents, if their file is next to the checkout."""

import gzip
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonpatch
import pytest

from history.diff import compare
from history.documents.exactjson import dumps, loads
from tests.unit.diff_documents import equal, exact

FILE = Path(__file__).parents[3] / "shared" / "data" / "countries-history.jsonl.gz"


def history() -> dict[str, list[Any]]:
    if not FILE.exists():
        pytest.skip(f"the real versions are not part of this repository and not at {FILE}")
    found: dict[str, list[Any]] = {}
    with gzip.open(FILE) as lines:
        for line in lines:
            row: Any = loads(line)
            found.setdefault(row["id"], []).append((row["version"], row["data"]))
    return {key: [data for _, data in sorted(rows, key=_version)] for key, rows in found.items()}


def _version(row: tuple[int, Any]) -> int:
    return row[0]


def test_every_patch_gives_the_next_version_and_together_they_are_shorter() -> None:
    ours = theirs = 0
    for versions in history().values():
        for old, new in pairwise(versions):
            diff = compare(old, new)
            assert exact(jsonpatch.JsonPatch(diff.patch).apply(old)) == exact(new)
            assert (diff.changes == ()) == equal(old, new)
            ours += len(dumps(diff.patch))
            theirs += len(dumps(jsonpatch.JsonPatch.from_diff(old, new, dumps=_text).patch))
    assert ours <= theirs


def test_a_document_is_rebuilt_from_its_first_version_and_the_patches() -> None:
    for versions in list(history().values())[::10]:
        document = versions[0]
        for old, new in pairwise(versions):
            document = jsonpatch.JsonPatch(compare(old, new).patch).apply(document)
        assert exact(document) == exact(versions[-1])


def _text(value: Any) -> str:
    return dumps(value).decode()
