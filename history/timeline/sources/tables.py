"""The source of what this installation stores: the *_aud tables, on one server or on a cluster.

Also has the queries for lists of entities, which only the tables answer.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from itertools import chain
from typing import Any, NamedTuple

from psycopg.types.numeric import Int4

from history.kinds.entities import (
    CHILDREN,
    ENTITIES,
    PARTS,
    ROOT,
    EntityKind,
)
from history.store.blocks.queries import build_damage_error
from history.store.database.prepared import Values
from history.store.versions import (
    FIRST,
    LAST,
    Damaged,
    EntityRef,
    FetchedVersions,
    NewestVersion,
    TimelinePosition,
    VersionKey,
    VersionRef,
    VersionRow,
)
from history.timeline.query import TimelineOrder, TimelineQuery, TimelineSort
from history.timeline.sources import statements
from history.timeline.sources.statements import FieldNames, format_sql


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
        "high": _find_next_day(high),
        **after_values,
        # The type as text, which has no other type than NULL.
        "author": filters.author,
        "client_id": filters.client_id,
        "type": None if filters.type is None else str(filters.type.value),
    }


@dataclass(frozen=True, slots=True)
class TableSource:
    """What a source is asked: keys and rows of one kind or one application. No answer is masked,
    and no question refused. fields: if set, large documents are read only as far as these fields
    need; who asks takes them out of the others. Raises DamagedBlockError for what cannot be read;
    where `damaged` is given, that is noted there, and left out."""

    fields: FieldNames = None
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
        keys = self._group_keys((entity, *row) for row in rows)
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
                    _make_ref_values(kind_refs, blocks),
                    self.fields,
                )
                for entity, kind_refs in missing_by_kind.items()
            ]
            for entity, raw_rows in zip(
                missing_by_kind, statements.fetch_pipelined(bounded), strict=True
            ):
                rows, unread = statements.decode_rows(entity, raw_rows, self.damaged)
                fetched.rows.extend(rows)
                fetched.unread.extend(unread)
        return fetched

    def fetch_newest(
        self, entity: EntityKind, id: str, limits: Sequence[VersionKey], count: int
    ) -> tuple[list[VersionKey], list[VersionRow]]:
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
        raw_rows: list[tuple[Any, ...]] = []
        for *body, numbers, moments, damaged_at in statements.fetch_rows(
            format_sql(statements.NEWEST, entity, bodies=bodies), values
        ):
            if damaged_at is not None:
                error = build_damage_error(entity.table, id, damaged_at)
                statements.note_damage(self.damaged, (entity, id, None), error)
                return [], []
            if numbers is not None:
                keys = sorted(map(VersionKey, numbers, moments))
            elif body[0] is not None:
                raw_rows.append(tuple(body))
        # Those of them that are asked for are read again, and are an error then.
        return keys, statements.decode_rows(entity, raw_rows, {}).rows

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
        return self._group_keys((ENTITIES[kind], *row) for kind, *row in rows)

    def fetch_application_page(
        self, query: TimelineQuery, after: TimelinePosition | None, limit: int
    ) -> tuple[list[VersionRef], dict[EntityRef, list[VersionKey]]]:
        """Return up to `limit` versions of an application and its children, in display order.

        Also returns the keys of all versions of each entity among them.

        Args:
            after: The position to begin after; None to begin with the first version.
        """
        below = query.order is TimelineOrder.DESC and not query.filters.by_row
        text = statements.make_application_page_sql(query.order, below)
        rows = statements.fetch_rows(text, _make_page_values(query, after, limit))
        page = sorted(row for row in rows if row[0] is not None)
        key_rows = ((ENTITIES[kind], *row) for number, kind, *row in rows if number is None)
        refs = [
            (ENTITIES[kind], id, VersionKey(version, moment))
            for _, kind, id, version, moment, _ in page
        ]
        return refs, self._group_keys(key_rows)

    def _group_keys(self, rows: Iterable[tuple[Any, ...]]) -> dict[EntityRef, list[VersionKey]]:
        """Keys by entity, ascending; none of an entity of which not all are known.

        Args:
            rows: kind, id, version, moment, and whether these are of a row that is not as it was
                written.
        """
        keys_by_entity: dict[EntityRef, list[VersionKey]] = {}
        broken: dict[EntityRef, datetime] = {}
        for entity, id, version, moment, damaged in rows:
            keys_by_entity.setdefault((entity, id), []).append(VersionKey(version, moment))
            if damaged:
                broken[entity, id] = moment
        for (entity, id), moment in broken.items():
            error = build_damage_error(entity.table, id, moment)
            statements.note_damage(self.damaged, (entity, id, None), error)
            del keys_by_entity[entity, id]
        for keys in keys_by_entity.values():
            keys.sort()
        return keys_by_entity


def _find_next_day(moment: datetime) -> datetime:
    """Return the first moment of the UTC day after this one."""
    if moment >= LAST.updated_at - timedelta(days=1):
        return LAST.updated_at
    return datetime.combine(moment.astimezone(UTC) + timedelta(days=1), time(), UTC)


def _make_ref_values(refs: Sequence[VersionRef], blocks: bool) -> Values:
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
            spans[id, _find_next_day(key.updated_at)].append(key.updated_at)
        ids, ends = zip(*spans, strict=True)
        values |= {
            "of": list(ids),
            "lows": [min(moments_of_day) for moments_of_day in spans.values()],
            "highs": [max(moments_of_day) for moments_of_day in spans.values()],
            "ends": list(ends),
            "end": max(ends),
        }
    return values


# Lists of the store alone: history.timeline.search leaves out what the reader may not see.

_NEWEST_KEYS = """
    SELECT DISTINCT ON (id) id, version, updated_at, {owner} FROM {table} WHERE id = ANY(%(ids)s)
    ORDER BY id, version DESC, updated_at DESC
"""


def fetch_newest_keys(entity: EntityKind, ids: Collection[str]) -> dict[str, NewestVersion]:
    """Return the newest version that the store has of each of these entities."""
    if not ids:
        return {}
    rows = statements.fetch_rows(format_sql(_NEWEST_KEYS, entity), {"ids": list(ids)})
    return {
        id: NewestVersion(VersionKey(version, moment), application)
        for id, version, moment, application in rows
    }


# For each application the time of the newest version of a kind that names it.
_NEWEST_CHILD = """
    SELECT product_instance_id, max(updated_at) FROM {table}
    WHERE product_instance_id = ANY(%(ids)s) GROUP BY product_instance_id
"""


class SearchHits(NamedTuple):
    """What the first query of a search finds."""

    # the newest version of each entity with one of the ids
    newest: dict[EntityKind, dict[str, VersionKey]]
    # for applications with an id that are not stored: the moment of the newest version of a child
    children: dict[str, datetime]
    documents: Sequence[tuple[Any, ...]]  # rows of search_key: value, name, kind, id


_WITH_VALUE = """
    SELECT value, name, entity, id FROM (
        SELECT value, name, entity, id, row_number() OVER (
            PARTITION BY value ORDER BY day DESC, name, entity, id) AS place
        FROM search_key WHERE value = ANY(%(texts)s) AND entity || ' ' || name = ANY(%(keys)s)
    ) AS key WHERE place <= %(limit)s
"""


def fetch_search_hits(
    texts: Sequence[str], ids: Sequence[str], keys: Sequence[str], limit: int
) -> SearchHits:
    """Return what has these ids, and at most `limit` documents with each of these values.

    Args:
        ids: The texts that can be an id.
        keys: Names of business keys, each with its kind.
    """
    rows_by_statement = statements.fetch_pipelined(
        [
            *(
                (format_sql(_NEWEST_KEYS, entity, owner="id"), {"ids": list(ids)})
                for entity in ENTITIES
            ),
            (_WITH_VALUE, {"texts": list(texts), "keys": list(keys), "limit": Int4(limit)}),
        ]
    )
    newest = {
        entity: {id: VersionKey(version, moment) for id, version, moment, _ in rows}
        for entity, rows in zip(ENTITIES, rows_by_statement, strict=False)
    }
    ids_without_root = [id for id in ids if ROOT is not None and id not in newest[ROOT]]
    return SearchHits(newest, fetch_newest_child_moments(ids_without_root), rows_by_statement[-1])


def fetch_newest_child_moments(applications: Collection[str]) -> dict[str, datetime]:
    """Return the moment of the newest version of a child, for each application that has
    children.
    """
    if not applications or not CHILDREN:
        return {}
    newest_moments: dict[str, datetime] = {}
    queries = [
        (format_sql(_NEWEST_CHILD, entity), {"ids": list(applications)}) for entity in CHILDREN
    ]
    for id, moment in chain.from_iterable(statements.fetch_pipelined(queries)):
        newest_moments[id] = max(moment, newest_moments.get(id, moment))
    return newest_moments


_CHILDREN = """
    SELECT DISTINCT id, product_instance_id FROM {table} WHERE product_instance_id = ANY(%(ids)s)
"""


def fetch_children(applications: Collection[str]) -> dict[EntityRef, set[str]]:
    """Return every child that names one of these applications in any version, with those it
    names.
    """
    owners: dict[EntityRef, set[str]] = {}
    queries = [(format_sql(_CHILDREN, entity), {"ids": list(applications)}) for entity in CHILDREN]
    for entity, rows in zip(CHILDREN, statements.fetch_pipelined(queries), strict=True):
        for id, application in rows:
            owners.setdefault((entity, id), set()).add(application)
    return owners


# Only keys are sorted. The type first: PostgreSQL need not read the document where it is no DELETE.
# The newest version of a block is its row, and has a document.
_NEWEST_DOCUMENTS = """
    SELECT {columns} FROM {table} JOIN (
        SELECT DISTINCT ON (id) id, version, updated_at FROM {table}
        WHERE id = ANY(%(ids)s) AND (packed IS NOT NULL OR type <> 2 OR data <> 'null'::jsonb)
        ORDER BY id, version DESC, updated_at DESC
    ) AS newest USING (id, updated_at, version) OFFSET 0
"""


def fetch_newest_documents(
    entity: EntityKind,
    ids: Collection[str],
    fields: FieldNames = None,
    damaged: Damaged | None = None,
) -> list[VersionRow]:
    """Return the newest version that has a document of each entity: a deletion may have none.

    `fields` and `damaged` are as in TableSource.
    """
    rows: list[VersionRow] = []
    ids_to_read = list(ids)
    while ids_to_read:
        text, values = format_sql(_NEWEST_DOCUMENTS, entity), {"ids": ids_to_read}
        fetched = statements.fetch_versions(entity, text, values, fields, damaged)
        rows += fetched.rows
        ids_to_read = [id for _, id, _ in fetched.unread]
    return rows


# Of the two rows that were written last. What is compressed to little is measured whole.
_NEWEST_BYTES = """
    SELECT coalesce(max(coalesce(unpacked, CASE WHEN stored > %(most)s THEN stored
        ELSE octet_length(data::text) END)), 0)
    FROM (
        SELECT unpacked, data, pg_column_size(data) AS stored FROM {table} WHERE id = %(id)s
        ORDER BY updated_at DESC LIMIT 2
    ) AS newest
"""


def measure_newest_documents(
    entity_refs: Collection[EntityRef], max_bytes: int
) -> dict[EntityRef, int]:
    """Return how large the newest documents of these entities are.

    For an entity with larger ones than `max_bytes` it is any number above it. No large document is
    read.
    """
    queries = [
        (format_sql(_NEWEST_BYTES, entity), {"id": id, "most": Int4(max_bytes)})
        for entity, id in entity_refs
    ]
    sizes = statements.fetch_pipelined(queries)
    return {entity: int(size) for entity, [(size,)] in zip(entity_refs, sizes, strict=True)}
