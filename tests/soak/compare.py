"""Compares what was sent with what is stored: every version by the fingerprint of its content."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq

from history.kinds.entities import ENTITIES
from tests.soak.recorder import SentContent, SentKey

_ROWS = """
SELECT id, version, updated_at, client_id, coalesce(author, ''), type, md5(data::text) FROM {}
"""
EXAMPLE_COUNT = 5


@dataclass
class StoredContents:
    """The stored versions.

    `in_both` counts versions that are in two places with the same content, which is fine only while
    a day is in the archive and not yet dropped.
    """

    versions: dict[SentKey, SentContent] = field(default_factory=dict)
    different: list[str] = field(default_factory=list)
    tables: int = 0
    archive: int = 0
    in_both: int = 0

    def add_version(self, key: SentKey, content: SentContent) -> None:
        if key in self.versions:
            self.in_both += 1
            if self.versions[key] != content:
                self.different.append(f"{key} is there with two contents")
        self.versions[key] = content


def load_stored(url: str, archive: Path) -> StoredContents:
    """Return everything in the tables and in the archive.

    Args:
        url: Of a login that may read the tables.
    """
    stored = StoredContents()
    with psycopg.connect(url) as plain:
        plain.execute("SET timezone = 'UTC'")
        for entity in ENTITIES:
            with plain.cursor(name="soak") as cursor:
                cursor.itersize = 10_000
                cursor.execute(_ROWS.format(entity.table))
                for row in cursor:
                    stored.add_version(SentKey(entity.table, row[0], row[1]), SentContent(*row[2:]))
                    stored.tables += 1
    for name, row_ in _read_archive(archive):
        stored.add_version(
            SentKey(name, row_["id"], row_["version"]),
            SentContent(
                row_["updated_at"], row_["client_id"], row_["author"] or "", row_["type"],
                hashlib.md5(row_["data"].encode(), usedforsecurity=False).hexdigest(),
            ),
        )  # fmt: skip
        stored.archive += 1
    return stored


def _read_archive(archive: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The table and the row of every archived version. Read without Annals: the files that each
    day's manifest lists."""
    for manifest in sorted(archive.rglob("manifest.json")):
        contents = json.loads(manifest.read_text())
        for file in contents["files"]:
            parquet = pq.ParquetFile(manifest.parent / Path(file["name"]).name)
            for batch in parquet.iter_batches(5_000):
                yield from ((contents["table"], row) for row in batch.to_pylist())


def describe_differences(sent: Mapping[SentKey, SentContent], stored: StoredContents) -> list[str]:
    """Return a sentence for each kind of difference, with a few examples."""
    missing = [key for key in sent if key not in stored.versions]
    unsent = [key for key in stored.versions if key not in sent]
    changed = [
        key for key, content in sent.items()
        if stored.versions.get(key, content) != content
    ]  # fmt: skip
    return [
        f"{len(keys):,} versions are {difference}: {keys[:EXAMPLE_COUNT]}"
        for difference, keys in (
            ("missing", missing),
            ("there, but nobody sent them", unsent),
            ("there with another content", [*changed, *stored.different]),
        )
        if keys
    ]
