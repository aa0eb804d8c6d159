"""The source of what this installation stores: the *_aud tables, on one server or on a cluster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import NamedTuple

from psycopg.types.numeric import Int4

from history.kinds.entities import ENTITIES, PARTS, EntityKind
from history.store.blocks.queries import build_damage_error
from history.store.database.prepared import Values
from history.store.versions import (
    FIRST,
    LAST,
    ApplicationPage,
    Damaged,
    EntityRef,
    FetchedVersions,
    NewestVersions,
    TimelinePosition,
    VersionKey,
    VersionRef,
)
from history.timeline.query import TimelineOrder, TimelineQuery, TimelineSort
from history.timeline.sources import statements
from history.timeline.sources.statements import BoundedRow, FieldNames, format_sql


def _make_page_values(
    query: TimelineQuery, after: TimelinePosition | None, limit: int, *, by_time: bool = True
) -> Values:
    """Make the parameters of a page after a position; None for the first page."""
    filters, order = query.filters, query.order
    start = LAST if order is TimelineOrder.DESC else FIRST
    after = after or TimelinePosition(start.updated_at, -1, "", start.version)
    since, until = filters.since or FIRST.updated_at, filters.until or LAST.updated_at
    low, high = since, until
    if by_time and order is TimelineOrder.DESC:
        after = min(after, TimelinePosition(until, -1, "", -1))
        high = after.updated_at
    elif by_time:
        low = max(since, after.updated_at)
    after_values = {
        f"after_{name}": Int4(value) if isinstance(value, int) else value
        for name, value in after._asdict().items()
    }
    return {
        "id": query.id,
        "limit": Int4(limit),
        # A block is stored where its newest version is, on the day of them all.
        "since": since,
        "until": until,
        "low": low,
        "high": find_next_day(high),
        **after_values,
        # The type as text, which has no other type than NULL.
        "author": filters.author,
        "client_id": filters.client_id,
        "type": None if filters.type is None else str(filters.type.value),
    }


@dataclass(frozen=True, slots=True)
class TableSource:
    """The tables of versions as a source: keys and rows of one kind or of one application.

    Raises DamagedBlockError for what cannot be read.
    """

    # If set, large documents are read only as far as these fields need. MergedSource takes the
    # fields out of the others.
    fields: FieldNames = None
    # If set, what cannot be read is noted here and left out of answers, and is not an error.
    damaged: Damaged | None = None

    def fetch_page(
        self, entity: EntityKind, query: TimelineQuery, after: TimelinePosition | None, limit: int
    ) -> FetchedVersions:
        """Return up to `limit` versions after a position in display order; None for the first page.

        Returns fewer if their documents are larger than READ_BYTES. The path filter is not applied.
        """
        by_time = query.sort is TimelineSort.UPDATED_AT
        below = by_time and query.order is TimelineOrder.DESC and not query.filters.by_row
        text = statements.make_page_sql(entity, query.sort, query.order, below)
        values = _make_page_values(query, after, limit, by_time=by_time)
        return statements.fetch_versions(entity, text, values, self.fields, self.damaged)

    def fetch_keys(self, entity: EntityKind, ids: Collection[str]) -> dict[str, list[VersionKey]]:
        """Return the keys of all versions of these entities, ascending. Entities without any are
        left out.
        """
        values = {"ids": list(ids), "last": LAST.updated_at}
        rows = statements.fetch_rows(format_sql(statements.KEYS, entity), values)
        keys = self._group_keys(_KeyRow(entity, *row) for row in rows)
        return {id: entity_keys for (_, id), entity_keys in keys.items()}

    def fetch_versions(self, refs: Iterable[VersionRef]) -> FetchedVersions:
        """Return versions by key, beginning with the first, as many as READ_BYTES allow.

        At least one of each kind is read. Versions that are not stored any more are left out.
        """
        refs_by_kind: dict[EntityKind, list[VersionRef]] = defaultdict(list)
        for ref in refs:
            refs_by_kind[ref[0]].append(ref)
        fetched = FetchedVersions([], [])
        # The third time: a day may be unpacked after it was asked for plain rows.
        for blocks in (False, True, False):
            fetched_refs = set(fetched.refs)
            missing_by_kind = {
                entity: missing_refs
                for entity, kind_refs in refs_by_kind.items()
                if (missing_refs := [ref for ref in kind_refs if ref not in fetched_refs])
            }
            bounded = [
                statements.bound_statement(
                    statements.make_versions_sql(entity, blocks),
                    make_ref_values(kind_refs, blocks),
                    self.fields,
                )
                for entity, kind_refs in missing_by_kind.items()
            ]
            for entity, raw_rows in zip(
                missing_by_kind, statements.fetch_pipelined(bounded), strict=True
            ):
                rows, unread = statements.decode_rows(
                    entity, map(BoundedRow._make, raw_rows), self.damaged
                )
                fetched.rows.extend(rows)
                fetched.unread.extend(unread)
        return fetched

    def fetch_newest(
        self, entity: EntityKind, id: str, limits: Sequence[VersionKey], count: int
    ) -> NewestVersions:
        """Return all keys of an entity, and its newest `count` versions at or before each of
        `limits`.

        Reads as many versions as one statement may bring.
        """
        bodies, values = statements.bound_statement(
            format_sql(statements.NEWEST_UP_TO, entity),
            {
                "id": id,
                "numbers": [Int4(key.version) for key in limits],
                "moments": [key.updated_at for key in limits],
                "count": Int4(count),
            },
            self.fields,
        )
        keys: list[VersionKey] = []
        rows: list[BoundedRow] = []
        for *row, numbers, moments, damaged_at in statements.fetch_rows(
            format_sql(statements.NEWEST, entity, bodies=bodies), values
        ):
            if damaged_at is not None:
                error = build_damage_error(entity.table, id, damaged_at)
                statements.note_damage(self.damaged, (entity, id, None), error)
                return NewestVersions([], [])
            bounded_row = BoundedRow._make(row)
            if numbers is not None:
                keys = sorted(map(VersionKey, numbers, moments))
            elif bounded_row.version is not None:
                rows.append(bounded_row)
        # Those of them that are asked for are read again, and are an error then.
        return NewestVersions(keys, statements.decode_rows(entity, rows, {}).rows)

    def fetch_owners(self, entity: EntityKind, ids: Collection[str]) -> dict[str, set[str]]:
        """Return the applications that any version of each entity names; none if the kind stands
        alone.
        """
        owners: dict[str, set[str]] = {}
        if not entity.alone:
            text = format_sql(statements.OWNERS, entity)
            for id, application in statements.fetch_rows(text, {"ids": list(ids)}):
                owners.setdefault(id, set()).add(application)
        return owners

    def fetch_members(self, application: str) -> dict[EntityRef, list[VersionKey]]:
        """Return the application and the children that name it in any version, each with all its
        keys.
        """
        texts = [
            statements.KEYS_OF_ROOT if kind.root else statements.KEYS_OF_CHILD for kind in PARTS
        ]
        text = " UNION ALL ".join(map(format_sql, texts, PARTS))
        rows = statements.fetch_rows(text, {"id": application})
        return self._group_keys(_KeyRow(ENTITIES[kind], *row) for kind, *row in rows)

    def fetch_application_page(
        self, query: TimelineQuery, after: TimelinePosition | None, limit: int
    ) -> ApplicationPage:
        """Return up to `limit` versions of an application and its children, in display order.

        Also returns the keys of all versions of each entity among them.

        Args:
            after: The position to begin after; None to begin with the first version.
        """
        below = query.order is TimelineOrder.DESC and not query.filters.by_row
        text = statements.make_application_page_sql(query.order, below)
        rows = statements.fetch_rows(text, _make_page_values(query, after, limit))
        # First the rows of the page, with their place on it; then the keys of what is on it.
        page = sorted(row for row in rows if row[0] is not None)
        key_rows = (_KeyRow(ENTITIES[kind], *row) for place, kind, *row in rows if place is None)
        refs = [
            (ENTITIES[kind], id, VersionKey(version, moment))
            for _, kind, id, version, moment, _ in page
        ]
        return ApplicationPage(refs, self._group_keys(key_rows))

    def _group_keys(self, rows: Iterable[_KeyRow]) -> dict[EntityRef, list[VersionKey]]:
        """Return keys by entity, ascending; none of an entity of which not all are known."""
        keys_by_entity: dict[EntityRef, list[VersionKey]] = {}
        broken: dict[EntityRef, datetime] = {}
        for entity, id, version, updated_at, is_damaged in rows:
            keys_by_entity.setdefault((entity, id), []).append(VersionKey(version, updated_at))
            if is_damaged:
                broken[entity, id] = updated_at
        for (entity, id), moment in broken.items():
            error = build_damage_error(entity.table, id, moment)
            statements.note_damage(self.damaged, (entity, id, None), error)
            del keys_by_entity[entity, id]
        for keys in keys_by_entity.values():
            keys.sort()
        return keys_by_entity


class _KeyRow(NamedTuple):
    """The key of one version, and whether its row is not as it was written."""

    entity: EntityKind
    id: str
    version: int
    updated_at: datetime
    is_damaged: bool


def find_next_day(moment: datetime) -> datetime:
    """Return the first moment of the UTC day after this one."""
    if moment >= LAST.updated_at - timedelta(days=1):
        return LAST.updated_at
    return datetime.combine(moment.astimezone(UTC) + timedelta(days=1), time(), UTC)


def make_ref_values(refs: Sequence[VersionRef], blocks: bool) -> Values:
    """Make the parameters of statements.make_versions_sql for these versions."""
    moments = [key.updated_at for *_, key in refs]
    values: dict[str, object] = {
        "ids": [id for _, id, _ in refs],
        "moments": moments,
        "numbers": [Int4(key.version) for *_, key in refs],
        "first": min(moments),
        "last": max(moments),
    }
    if blocks:
        spans: dict[tuple[str, datetime], list[datetime]] = defaultdict(list)
        for _, id, key in refs:
            spans[id, find_next_day(key.updated_at)].append(key.updated_at)
        ids, ends = zip(*spans, strict=True)
        values |= {
            "of": list(ids),
            "lows": [min(moments_of_day) for moments_of_day in spans.values()],
            "highs": [max(moments_of_day) for moments_of_day in spans.values()],
            "ends": list(ends),
            "end": max(ends),
        }
    return values
