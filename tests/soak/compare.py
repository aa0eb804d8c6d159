"""What was sent against what is there: every version of the tables and the archive, each by the
fingerprint of its content."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq

from history.entities import ENTITIES
from tests.soak.recorder import Content, Key

_ROWS = """
SELECT id, version, updated_at, client_id, coalesce(author, ''), type, md5(data::text) FROM {}
"""
SHOWN = 5


@dataclass
class Found:
    """The versions that are there. twice: in two places with one content, which is fine only while
    a day is in the archive and not yet dropped."""

    versions: dict[Key, Content] = field(default_factory=dict)
    different: list[str] = field(default_factory=list)
    tables: int = 0
    archive: int = 0
    both: int = 0

    def add(self, key: Key, content: Content) -> None:
        if key in self.versions:
            self.both += 1
            if self.versions[key] != content:
                self.different.append(f"{key} is there with two contents")
        self.versions[key] = content


def found(url: str, archive: Path) -> Found:
    """Everything in the tables and in the archive. url: of a login that may read the tables."""
    there = Found()
    with psycopg.connect(url) as plain:
        plain.execute("SET timezone = 'UTC'")
        for entity in ENTITIES:
            with plain.cursor(name="soak") as cursor:
                cursor.itersize = 10_000
                cursor.execute(_ROWS.format(entity.table))
                for row in cursor:
                    there.add(Key(entity.table, row[0], row[1]), Content(*row[2:]))
                    there.tables += 1
    for name, one in _archived(archive):
        there.add(
            Key(name, one["id"], one["version"]),
            Content(
                one["updated_at"], one["client_id"], one["author"] or "", one["type"],
                hashlib.md5(one["data"].encode(), usedforsecurity=False).hexdigest(),
            ),
        )  # fmt: skip
        there.archive += 1
    return there


def _archived(archive: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The table and the row of every archived version. Read without Annals: the files that each
    day's manifest lists."""
    for manifest in sorted(archive.rglob("manifest.json")):
        listed = json.loads(manifest.read_text())
        for file in listed["files"]:
            parquet = pq.ParquetFile(manifest.parent / Path(file["name"]).name)
            for batch in parquet.iter_batches(5_000):
                yield from ((listed["table"], row) for row in batch.to_pylist())


def wrong(sent: Mapping[Key, Content], there: Found) -> list[str]:
    """A sentence for each kind of difference, with a few examples."""
    missing = [key for key in sent if key not in there.versions]
    foreign = [key for key in there.versions if key not in sent]
    other = [
        key for key, content in sent.items()
        if there.versions.get(key, content) != content
    ]  # fmt: skip
    return [
        f"{len(keys):,} versions are {what}: {keys[:SHOWN]}"
        for what, keys in (
            ("missing", missing),
            ("there, but nobody sent them", foreign),
            ("there with another content", [*other, *there.different]),
        )
        if keys
    ]
