"""What was sent against what is there: every version of the tables and the archive, and the API's
answers for some histories, each by the fingerprint of its content."""

import base64
import hashlib
import json
import random
import urllib.parse
import urllib.request
from collections import Counter
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
# The versions of one answer of the API, with the fingerprint of each.
_SERVED = """
SELECT (v->>'version')::int, md5((v->'entity')::text)
FROM jsonb_array_elements(%s::jsonb->'data'->'history') AS v
"""
SHOWN = 5


@dataclass
class Found:
    """The versions that are there. twice: in two places with one content, which is fine only while
    a day is in the archive and not yet dropped."""

    versions: dict[Key, Content] = field(default_factory=dict)
    in_tables: set[Key] = field(default_factory=set)
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
                    there.in_tables.add(Key(entity.table, row[0], row[1]))
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


def served(
    address: str, login: str, url: str, sent: Mapping[Key, Content], there: Found, histories: int
) -> tuple[int, list[str]]:
    """Ask the API for some whole histories of which each version is in the tables. Returns how many
    versions it gave, and what is wrong."""
    names = {entity.table: entity.name for entity in ENTITIES}
    wanted: dict[tuple[str, str], dict[int, str]] = {}
    for key, content in sent.items():
        wanted.setdefault((key.table, key.id), {})[key.version] = content.data
    gone = {key[:2] for key in sent if key not in there.in_tables}
    whole = sorted(wanted.keys() - gone)
    chosen = random.Random(1).sample(whole, min(histories, len(whole)))
    count, faults = 0, []
    with psycopg.connect(url, autocommit=True) as plain:
        for table, id_ in chosen:
            got: Counter[tuple[int, str]] = Counter()
            for body in _pages(address, login, names[table], id_):
                got.update(plain.execute(_SERVED, [body]).fetchall())
            count += got.total()
            if got != Counter(wanted[table, id_].items()):
                faults.append(f"{names[table]} {id_}: the API has {sorted(got)[:SHOWN]}")
    return count, faults


def _pages(address: str, login: str, entity: str, id_: str) -> Iterator[str]:
    more: dict[str, str] = {}
    secret = base64.b64encode(f"{login}:{login}".encode()).decode()
    while True:
        query = urllib.parse.urlencode({"pageSize": 50, **more})
        request = urllib.request.Request(
            f"{address}/api/v1/history/{entity}/{urllib.parse.quote(id_, safe='')}?{query}",
            headers={"Authorization": f"Basic {secret}"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            body = response.read().decode()
        yield body
        token = json.loads(body)["data"].get("nextPageToken")
        if token is None:
            return
        more = {"pageToken": token}
