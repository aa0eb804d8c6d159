"""Compares the sent versions with the stored versions, by the fingerprints of their contents."""

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
    """The versions in the tables and in the archive."""

    versions: dict[SentKey, SentContent] = field(default_factory=dict)
    different: list[str] = field(default_factory=list)  # sentences about conflicting contents
    tables: int = 0  # how many versions are in the tables
    archive: int = 0  # how many versions are in the archive
    # How many versions are in both. This is right while a day is archived and not yet dropped.
    in_both: int = 0

    def add_version(self, key: SentKey, content: SentContent) -> None:
        if key in self.versions:
            self.in_both += 1
            if self.versions[key] != content:
                self.different.append(f"{key} is there with two contents")
        self.versions[key] = content


def load_stored(url: str, archive: Path) -> StoredContents:
    """Return all versions in the tables and in the archive.

    Args:
        url: A database URL whose login may read the tables.
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
    for name, fields in _read_archive(archive):
        stored.add_version(
            SentKey(name, fields["id"], fields["version"]),
            SentContent(
                fields["updated_at"],
                fields["client_id"],
                fields["author"] or "",
                fields["type"],
                hashlib.md5(fields["data"].encode(), usedforsecurity=False).hexdigest(),
            ),
        )
        stored.archive += 1
    return stored


def _read_archive(archive: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the table and the row of every archived version.

    The files that the manifest of each day lists are read without code of Annals.
    """
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
    changed = [key for key, content in sent.items() if stored.versions.get(key, content) != content]
    return [
        f"{len(keys):,} versions are {difference}: {keys[:EXAMPLE_COUNT]}"
        for difference, keys in (
            ("missing", missing),
            ("there, but nobody sent them", unsent),
            ("there with another content", [*changed, *stored.different]),
        )
        if keys
    ]
