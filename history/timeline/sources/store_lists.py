"""Lists of documents from the tables only, for searches, titles, need-to-know and changes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import NamedTuple

from psycopg.types.numeric import Int4

from history.kinds.entities import CHILDREN, ENTITIES, ROOT, EntityKind
from history.store.blocks.codec import DamagedBlockError
from history.store.database.prepared import FetchedRows, Statement
from history.store.versions import (
    Damaged,
    DamagedRef,
    EntityRef,
    NewestVersion,
    SourceRow,
    VersionKey,
    VersionRef,
)
from history.timeline.query import VersionFilters
from history.timeline.sources import changes, children, field_filter, statements
from history.timeline.sources.statements import BoundedRow, FieldNames, format_sql, keep_fields
from history.timeline.sources.tables import TableSource
from history.timeline.time_slices import ActivityRow, ChangesQuestion, ListedChange, TimeSlice

# Returns the key of the newest version of each document, and the application that it names.
_NEWEST_KEYS = """
    SELECT DISTINCT ON (id) id, version, updated_at, {owner} FROM {table} WHERE id = ANY(%(ids)s)
    ORDER BY id, version DESC, updated_at DESC
"""

# Returns for each application the moment of the newest version of a kind that names it.
_NEWEST_MOMENTS = """
    SELECT {kind}, product_instance_id, max(updated_at) FROM {table}
    WHERE product_instance_id = ANY(%(ids)s) GROUP BY product_instance_id
"""
# Returns for one application the moment of the newest version of one child that names it.
_NEWEST_MOMENT_OF_CHILD = """
    SELECT {kind}, product_instance_id, max(updated_at) FROM {table} WHERE {child_condition}
    GROUP BY product_instance_id
"""

# Returns the documents that had one of these business keys, as KeyHit: for each value at most
# %(limit)s documents, the ones that had it last.
_KEY_HITS = """
    SELECT value, name, entity, id FROM (
        SELECT value, name, entity, id, row_number() OVER (
            PARTITION BY value ORDER BY day DESC, name, entity, id) AS place
        FROM search_key WHERE value = ANY(%(texts)s) AND entity || ' ' || name = ANY(%(keys)s)
    ) AS key WHERE place <= %(limit)s
"""

# Returns the children of a kind that name one of these applications in any version.
_CHILDREN = """
    SELECT DISTINCT {kind}, id, product_instance_id FROM {table}
    WHERE product_instance_id = ANY(%(ids)s)
"""
# Returns one child and one application, if the child names it in any version.
_CHILD = """
    SELECT {kind}, id, product_instance_id FROM {table} WHERE {child_condition} LIMIT 1
"""
# Selects the versions of a ChildSpan: the id tells Citus which shard to ask.
_CHILD_CONDITION = """id = %(id)s AND product_instance_id = %(application)s
    AND updated_at >= %(first)s AND updated_at < %(end)s"""

# Returns for each document the newest version that has a snapshot. PostgreSQL sorts only keys, and
# compares only the snapshots of deletions with `null`. Each version in a block has a snapshot, and
# the newest one has the key of the row.
_NEWEST_SNAPSHOTS = """
    SELECT {columns} FROM {table} JOIN (
        SELECT DISTINCT ON (id) id, version, updated_at FROM {table}
        WHERE id = ANY(%(ids)s) AND (packed IS NOT NULL OR type <> 2 OR data <> 'null'::jsonb)
        ORDER BY id, version DESC, updated_at DESC
    ) AS newest USING (id, updated_at, version) {id_condition} OFFSET 0
"""
# Added on a cluster: the ids tell Citus which shards to ask. On one server PostgreSQL would use
# this condition to read all versions of the documents.
_ID_CONDITION = "WHERE id = ANY(%(ids)s)"

# Returns how many bytes of snapshots the larger of the two newest rows of a document has. If the
# stored, compressed form of a snapshot has more than %(most)s bytes, its size is returned and the
# snapshot is not decompressed.
_NEWEST_BYTES = """
    SELECT coalesce(max(coalesce(unpacked, CASE WHEN stored > %(most)s THEN stored
        ELSE octet_length(data::text) END)), 0)
    FROM (
        SELECT unpacked, data, pg_column_size(data) AS stored FROM {table} WHERE id = %(id)s
        ORDER BY updated_at DESC LIMIT 2
    ) AS newest
"""


class KeyHit(NamedTuple):
    """A document that had a business key: one row of search_key."""

    value: str
    name: str
    kind: str
    id: str


class SearchHits(NamedTuple):
    """The documents that a search found, before their newest versions are read."""

    # the newest version of each document with one of the ids
    newest: dict[EntityKind, dict[str, VersionKey]]
    # The moment of the newest version of a child, by the id of its application. Only for
    # applications that are not stored themselves.
    children: dict[str, datetime]
    documents: list[KeyHit]  # the documents with a business key


@dataclass(frozen=True, slots=True)
class StoreLists:
    """Lists of documents in the tables of versions.

    These answers are not closed. The caller must leave out what the viewer may not see: ids by
    ViewerPolicy.select_visible, and SourceRows by ViewerPolicy.apply.
    """

    fields: FieldNames = None  # only these top-level fields of snapshots are read; None: all
    damaged: Damaged | None = None  # see TableSource

    def fetch_search_hits(
        self, texts: Sequence[str], ids: Sequence[str], keys: Sequence[str], limit: int
    ) -> SearchHits:
        """Return the documents that have one of these ids or business keys.

        Args:
            texts: The searched values of business keys.
            ids: The searched ids of documents.
            keys: In which business keys to search. An entry is the name of a kind, a space, and the
                name of a business key.
            limit: How many documents to return for one searched value, at most.
        """
        rows_by_statement = statements.fetch_pipelined(
            [
                *(
                    (format_sql(_NEWEST_KEYS, entity, owner="id"), {"ids": list(ids)})
                    for entity in ENTITIES
                ),
                (_KEY_HITS, {"texts": list(texts), "keys": list(keys), "limit": Int4(limit)}),
            ]
        )
        newest = {
            entity: {id: VersionKey(version, moment) for id, version, moment, _ in rows}
            for entity, rows in zip(ENTITIES, rows_by_statement, strict=False)
        }
        ids_without_root = [id for id in ids if ROOT is not None and id not in newest[ROOT]]
        return SearchHits(
            newest=newest,
            children=self.fetch_newest_child_moments(ids_without_root),
            documents=list(map(KeyHit._make, rows_by_statement[-1])),
        )

    def fetch_newest_keys(
        self, entity: EntityKind, ids: Collection[str]
    ) -> dict[str, NewestVersion]:
        """Return the key of the newest version of each document, and its application."""
        if not ids:
            return {}
        rows = children.fetch_for_ids(format_sql(_NEWEST_KEYS, entity), ids)
        return {
            id: NewestVersion(VersionKey(version, moment), application)
            for id, version, moment, application in rows
        }

    def fetch_newest_child_moments(self, applications: Collection[str]) -> dict[str, datetime]:
        """Return the moment of the newest version of any child of each application.

        Applications without children are left out.
        """
        if not applications or not CHILDREN:
            return {}
        newest_moments: dict[str, datetime] = {}
        rows = _fetch_child_rows(_NEWEST_MOMENTS, _NEWEST_MOMENT_OF_CHILD, applications)
        for _, id, moment in rows:
            newest_moments[id] = max(moment, newest_moments.get(id, moment))
        return newest_moments

    def fetch_children(self, applications: Collection[str]) -> dict[EntityRef, set[str]]:
        """Return the children that name one of `applications` in any stored version.

        Returns:
            For each child, the ids in `applications` that it names.
        """
        owners: dict[EntityRef, set[str]] = {}
        for kind, id, application in _fetch_child_rows(_CHILDREN, _CHILD, applications):
            owners.setdefault(EntityRef(ENTITIES[kind], id), set()).add(application)
        return owners

    def fetch_owners(self, entity: EntityKind, ids: Collection[str]) -> dict[str, set[str]]:
        """Return the applications that each document names in any stored version."""
        return TableSource().fetch_owners(entity, ids)

    def fetch_newest_snapshots(self, entity: EntityKind, ids: Collection[str]) -> list[SourceRow]:
        """Return for each document the newest version that has a snapshot.

        A deletion may have no snapshot: then an older version is returned.
        """
        rows: list[SourceRow] = []
        ids_to_read = list(ids)
        id_condition = _ID_CONDITION if statements.is_distributed() else ""
        text = format_sql(_NEWEST_SNAPSHOTS, entity, id_condition=id_condition)
        while ids_to_read:
            bounded = [
                statements.bound_statement(text, {"ids": group}, self.fields)
                for group in children.group_ids(ids_to_read)
            ]
            ids_to_read = []
            for raw_rows in statements.fetch_pipelined(bounded):
                bounded_rows = map(BoundedRow._make, raw_rows)
                fetched = statements.decode_rows(entity, bounded_rows, self.damaged)
                rows += fetched.rows
                ids_to_read += [ref.id for ref in fetched.unread]
        return keep_fields(rows, self.fields)

    def measure_newest_snapshots(
        self, entity_refs: Collection[EntityRef], max_bytes: int
    ) -> dict[EntityRef, int]:
        """Return the approximate size of the newest snapshot of each document, in bytes.

        The size is that of the larger of the document's two newest rows, because the newest version
        can be in either row. A block counts with all of its snapshots. PostgreSQL does not read
        large snapshots to measure them: for a snapshot of more than `max_bytes` bytes, the result
        can be any number above `max_bytes`.
        """
        queries = [
            (format_sql(_NEWEST_BYTES, entity), {"id": id, "most": Int4(max_bytes)})
            for entity, id in entity_refs
        ]
        sizes = statements.fetch_pipelined(queries)
        return {
            entity_ref: int(size) for entity_ref, [(size,)] in zip(entity_refs, sizes, strict=True)
        }

    # Lists of changes.

    def fetch_changes(self, question: ChangesQuestion) -> list[ListedChange]:
        """Return versions of all documents in a slice of time.

        See `fetch_changes` in history/timeline/sources/changes.py.
        """
        return changes.fetch_changes(question)

    def drop_unchanged(self, changes: Sequence[ListedChange], field: str) -> list[ListedChange]:
        """Return `changes` without the versions that certainly did not change `field`.

        Plain rows are not examined: only versions in blocks are left out. See
        `drop_unchanged_packed` in history/timeline/sources/field_filter.py.

        Args:
            field: The name of a top-level field.
        """
        return field_filter.drop_unchanged_packed(changes, field)

    def fetch_listed(
        self, refs: Sequence[VersionRef], filters: VersionFilters
    ) -> dict[VersionRef, ListedChange]:
        """Return the versions among `refs` that are stored and that the filters select.

        See `fetch_listed` in history/timeline/sources/changes.py.
        """
        return changes.fetch_listed(refs, filters)

    def fetch_activity(
        self, kinds: Sequence[EntityKind], author: str, time_slice: TimeSlice, zone: str
    ) -> list[ActivityRow]:
        """Count the versions that a person made in a slice of time, by kind, day and service.

        See `fetch_activity` in history/timeline/sources/changes.py.
        """
        return changes.fetch_activity(kinds, author, time_slice, zone)

    def fetch_keys(self, entity: EntityKind, ids: Collection[str]) -> dict[str, list[VersionKey]]:
        """Return the keys of all versions of these documents. See TableSource.fetch_keys."""
        return TableSource(self.fields, self.damaged).fetch_keys(entity, ids)

    def note_damage(self, place: DamagedRef, error: DamagedBlockError) -> None:
        """Record in `damaged` a document that a list lacks because a row is damaged."""
        statements.note_damage(self.damaged, place, error)


def _fetch_child_rows(
    text: str, text_for_one_child: str, applications: Collection[str]
) -> FetchedRows:
    """Run a statement for each kind of children, and return the rows of all kinds.

    Args:
        text: A statement about the children of one kind that belong to the applications in its
            parameter `ids`.
        text_for_one_child: A statement about one child, which asks only one shard. On a cluster it
            is run for each child instead of `text`, if the table search_key lists all children.
    """
    if 0 < len(applications) <= children.MAX_STATEMENTS and statements.is_distributed():
        spans = children.list_children(applications).spans
        if spans is not None:
            queries: list[Statement] = [
                (
                    format_sql(text_for_one_child, span.entity, child_condition=_CHILD_CONDITION),
                    {
                        "id": span.id,
                        "application": span.application,
                        "first": span.first,
                        "end": span.end,
                    },
                )
                for span in spans
            ]
            return list(chain.from_iterable(statements.fetch_pipelined(queries)))
    values = {"ids": list(applications)}
    queries = [(format_sql(text, entity), values) for entity in CHILDREN]
    return list(chain.from_iterable(statements.fetch_pipelined(queries)))
