"""How much each client service brings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum

from django.db import connection, transaction
from psycopg import sql

from history import diff, distribution, labels
from history.daily.canonical import Connection
from history.daily.days import partition_name
from history.diff import Identity
from history.distribution import DISTRIBUTED_BY
from history.documents.exactjson import loads
from history.documents.jsonb import from_store
from history.entities import BY_TABLE, ENTITIES, Entity
from history.models import DayShare
from history.partitions import catalog
from history.record import ChangeType

Report = Callable[[str, date], None]
# The services of one day and table that are kept by name; the others count together, as OTHER.
MOST_SERVICES = 30
OTHER = ""
# Documents in memory at a time: each may have megabytes.
AT_ONCE = 20

# What a row needs next to its document: the header and the other columns.
_COUNTS = """
SELECT client_id, count(*), sum(pg_column_size(data) + 100)::float8 FROM {part} GROUP BY client_id
"""
# The same rows at each call: one of so many, by a hash of their key.
_SOME = """
SELECT id, version, updated_at, client_id, type FROM {part}
WHERE (hashtext(id || version) & 2147483647) %% %s = 0 ORDER BY id, version
"""
# The version and the one before it, in the order in which timelines have them.
_PAIRS = """
SELECT asked.number, own.data::text, before.data::text
FROM unnest(%s::text[], %s::int[], %s::timestamptz[])
    WITH ORDINALITY AS asked (id, version, updated_at, number)
JOIN {part} own USING (id, version, updated_at)
LEFT JOIN LATERAL (
    SELECT data FROM {table} old WHERE old.id = asked.id
        AND (old.version, old.updated_at) < (asked.version, asked.updated_at)
    ORDER BY old.version DESC, old.updated_at DESC LIMIT 1
) before ON true
ORDER BY asked.number
"""
# The same on several nodes. A child's first version in another application is a first one.
_PAIRS_SPREAD = """
SELECT DISTINCT ON (asked.number, own.{column}) asked.number, own.data::text, before.data::text
FROM unnest(%s::text[], %s::int[], %s::timestamptz[])
    WITH ORDINALITY AS asked (id, version, updated_at, number)
JOIN {part} own ON own.id = asked.id AND own.version = asked.version
    AND own.updated_at = asked.updated_at
LEFT JOIN {table} before ON before.id = own.id AND before.{column} = own.{column}
    AND (before.version, before.updated_at) < (own.version, own.updated_at)
ORDER BY asked.number, own.{column}, before.version DESC, before.updated_at DESC
"""


class Changed(StrEnum):
    """What a version changed. FIRST: nothing is stored before it. REAL includes deletions."""

    FIRST = "first"
    NOTHING = "nothing"
    TECHNICAL = "technical"
    REAL = "real"


@dataclass(frozen=True, slots=True)
class Amount:
    """Versions, and bytes on disk with their part of the indexes."""

    versions: float = 0.0
    bytes: float = 0.0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.versions + other.versions, self.bytes + other.bytes)

    def __mul__(self, part: float) -> Amount:
        return Amount(self.versions * part, self.bytes * part)


@dataclass(frozen=True, slots=True)
class Brought:
    """What a service brought: everything, what changed nothing, what changed only technical fields.
    compared: the rows from which the last two are estimated."""

    all: Amount = Amount()
    nothing: Amount = Amount()
    technical: Amount = Amount()
    compared: int = 0

    def __add__(self, other: Brought) -> Brought:
        return Brought(
            self.all + other.all,
            self.nothing + other.nothing,
            self.technical + other.technical,
            self.compared + other.compared,
        )


@dataclass(frozen=True, slots=True)
class ClientShare:
    """What one service brought of one kind of entity. client_id: OTHER for the small ones."""

    client_id: str
    entity: Entity
    brought: Brought


@dataclass(frozen=True, slots=True)
class Shares:
    """The recorded days, added up. since, until: the first and the last, both included; days: how
    many different ones. lines: by bytes, the most first."""

    since: date
    until: date
    days: int
    lines: Sequence[ClientShare]

    @property
    def total(self) -> Brought:
        return sum((line.brought for line in self.lines), Brought())

    def by_client(self) -> list[tuple[str, Brought]]:
        """Over all kinds of entities, the most bytes first."""
        sums: dict[str, Brought] = {}
        for line in self.lines:
            sums[line.client_id] = sums.get(line.client_id, Brought()) + line.brought
        return sorted(sums.items(), key=lambda each: (-each[1].all.bytes, each[0]))

    def saved(self, retention_days: int) -> tuple[float, float]:
        """Bytes on disk with all days of retention and today that a filter upstream would save."""
        scale = (retention_days + 1) / self.days
        nothing, technical = self.total.nothing.bytes, self.total.technical.bytes
        return nothing * scale, (nothing + technical) * scale


def record(
    today: date, retention_days: int, rows: int, again: bool, report: Report = lambda *_: None
) -> int:
    """Record the days inside retention that are over and not recorded yet, or all again; forget
    older ones; each day of a table in a transaction. rows: how many of each to compare, about.
    Returns how many days of tables were recorded."""
    oldest = today - timedelta(days=retention_days)
    DayShare.objects.filter(day__lt=oldest).delete()
    known = set() if again else set(DayShare.objects.values_list("table", "day").distinct())
    count = 0
    for part in catalog.read(connection, [entity.table for entity in ENTITIES]):
        day = part.day
        if day is None or part.start is None or not oldest <= day < today:
            continue
        if (part.table, day) in known or part.name != partition_name(part.table, day):
            continue
        connection.ensure_connection()
        found = _shares(connection.connection, BY_TABLE[part.table], part, rows)
        with transaction.atomic():
            DayShare.objects.filter(table=part.table, day=day).delete()
            DayShare.objects.bulk_create(_row(part.table, day, *each) for each in found.items())
        report(part.table, day)
        count += 1
    return count


def _shares(
    plain: Connection, entity: Entity, part: catalog.Partition, rows: int
) -> dict[str, Brought]:
    """What each service brought on a day."""
    names = {"part": sql.Identifier(part.name)}
    with plain.cursor() as cursor:
        counted = cursor.execute(sql.SQL(_COUNTS).format(**names)).fetchall()
        every = max(1, sum(versions for _, versions, _ in counted) // rows)
        found = cursor.execute(sql.SQL(_SOME).format(**names), [every]).fetchall()
    changed: dict[str, Counter[Changed]] = {}
    for client, kind in _compared(plain, entity, part.name, found):
        changed.setdefault(client, Counter())[kind] += 1
    weight = sum(size for _, _, size in counted)
    shares: dict[str, Brought] = {}
    for place, (client, versions, size) in enumerate(
        sorted(counted, key=lambda row: (-row[1], row[0]))
    ):
        whole = Amount(versions, part.bytes * size / weight)
        mine = changed.get(client, Counter())
        seen = mine.total()
        parts = [
            whole * (mine[kind] / (seen or 1)) for kind in (Changed.NOTHING, Changed.TECHNICAL)
        ]
        name = client if place < MOST_SERVICES else OTHER
        shares[name] = shares.get(name, Brought()) + Brought(whole, parts[0], parts[1], seen)
    return shares or {OTHER: Brought()}  # a day without rows is recorded, too


def _compared(
    plain: Connection,
    entity: Entity,
    part: str,
    rows: Sequence[tuple[str, int, datetime, str, int]],
) -> Iterator[tuple[str, Changed]]:
    """The service of each row, and what it changed."""
    catalogue = labels.catalogue()
    identity = Identity(entity.list_keys, entity.list_places)
    pairs = sql.SQL(_PAIRS_SPREAD if distribution.active(plain) else _PAIRS).format(
        part=sql.Identifier(part),
        table=sql.Identifier(entity.table),
        column=sql.Identifier(DISTRIBUTED_BY[entity.table]),
    )
    for start in range(0, len(rows), AT_ONCE):
        some = rows[start : start + AT_ONCE]
        asked = [list(column) for column in list(zip(*some, strict=True))[:3]]
        with plain.cursor() as cursor:
            for number, own, before in cursor.execute(pairs, asked, prepare=True):
                _, _, _, client, type_ = some[number - 1]
                yield client, judged(entity, type_, own, before, catalogue, identity)


def judged(
    entity: Entity,
    type_: int,
    own: str,
    before: str | None,
    catalogue: labels.Catalogue,
    identity: Identity,
) -> Changed:
    """What a version changed. own, before: the stored snapshots; None: none before."""
    if before is None:
        return Changed.FIRST
    if type_ == ChangeType.DELETE:
        return Changed.REAL
    if own == before:
        return Changed.NOTHING
    old, new = (loads(from_store(text.encode())) for text in (before, own))
    changed = [catalogue.find(entity.name, each.path) for each in diff.changes(old, new, identity)]
    if not changed:
        return Changed.NOTHING
    technical = all(label is not None and label.technical for label in changed)
    return Changed.TECHNICAL if technical else Changed.REAL


def _row(table: str, day: date, client: str, brought: Brought) -> DayShare:
    amounts: Mapping[str, list[float]] = {
        name: [amount.versions, amount.bytes]
        for name in ("all", "nothing", "technical")
        for amount in [getattr(brought, name)]
    }
    sampled = brought.compared
    return DayShare(table=table, day=day, total=False, client_id=client, sampled=sampled, **amounts)


def recorded(since: date | None = None) -> Shares | None:
    """What is recorded of the days from `since` on; None if nothing is."""
    rows = DayShare.objects.all() if since is None else DayShare.objects.filter(day__gte=since)
    sums: dict[tuple[str, str], Brought] = {}
    days = set()
    for row in rows.order_by("day", "table", "client_id"):
        days.add(row.day)
        key = (row.client_id, row.table)
        whole, nothing, technical = (
            Amount(*each) for each in (row.all, row.nothing, row.technical)
        )
        brought = Brought(whole, nothing, technical, row.sampled)
        sums[key] = sums.get(key, Brought()) + brought
    if not days:
        return None
    lines = [
        ClientShare(client, BY_TABLE[table], brought)
        for (client, table), brought in sums.items()
        if brought.all.versions
    ]
    lines.sort(key=lambda line: (-line.brought.all.bytes, line.client_id, line.entity.name))
    return Shares(min(days), max(days), len(days), lines)
