"""The tables of versions (*_aud) as a source, on one server or on a cluster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, pairwise
from typing import NamedTuple

from psycopg.types.numeric import Int4

from history.kinds.entities import ENTITIES, PARTS, EntityKind
from history.store.blocks.queries import build_damage_error
from history.store.database.prepared import Statement, Values
from history.store.versions import (
    FIRST,
    LAST,
    ApplicationPage,
    Damaged,
    DamagedRef,
    EntityRef,
    FetchedVersions,
    NewestVersions,
    TimelinePosition,
    VersionKey,
    VersionRef,
)
from history.timeline.query import TimelineOrder, TimelineQuery, TimelineSort
from history.timeline.sources import children, statements
from history.timeline.sources.statements import BoundedRow, FieldNames, format_sql


def _make_page_values(
    query: TimelineQuery, after: TimelinePosition | None, limit: int, *, by_time: bool = True
) -> Values:
    """Make the parameters of the statement of one page.

    Args:
        after: The position after which the page begins; None for the first page.
        limit: How many versions the page has, at most.
        by_time: Whether the timeline is ordered by time. False: by number.
    """
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
        "since": since,
        "until": until,
        # A block has the moment of its newest version. All its versions are of one day, so the rows
        # up to the end of the day of `high` may have versions before `high`.
        "low": low,
        "high": statements.find_next_day(high),
        **after_values,
        # As text, which psycopg sends without a type, like NULL. See prepared.Values.
        "author": filters.author,
        "client_id": filters.client_id,
        "type": None if filters.type is None else str(filters.type.value),
    }


@dataclass(frozen=True, slots=True)
class TableSource:
    """The tables of versions as a source of keys and rows."""

    # If set, PostgreSQL sends only these top-level fields of snapshots. It sends blocks whole:
    # MergedSource leaves out the other fields of their snapshots.
    fields: FieldNames = None
    # Documents and versions that cannot be read are left out of answers and recorded here. None: a
    # version that cannot be read raises DamagedBlockError.
    damaged: Damaged | None = None

    def fetch_page(
        self, entity: EntityKind, query: TimelineQuery, after: TimelinePosition | None, limit: int
    ) -> FetchedVersions:
        """Return the next versions of a document, in display order.

        Once READ_BYTES of snapshots are read, the other versions are returned as `unread`. The path
        filter is not applied.

        Args:
            after: The position after which the page begins; None for the first page.
            limit: How many versions to return, at most.
        """
        by_time = query.sort is TimelineSort.UPDATED_AT
        stop_early = (
            by_time and query.order is TimelineOrder.DESC and not query.filters.may_skip_versions
        )
        text = statements.make_page_sql(entity, query.sort, query.order, stop_early)
        values = _make_page_values(query, after, limit, by_time=by_time)
        return statements.fetch_versions(entity, text, values, self.fields, self.damaged)

    def fetch_keys(self, entity: EntityKind, ids: Collection[str]) -> dict[str, list[VersionKey]]:
        """Return the keys of all versions of each document, ascending.

        Documents without a version are left out.
        """
        text = format_sql(statements.KEYS_OF_DOCUMENTS, entity)
        rows = children.fetch_for_ids(text, ids, last=LAST.updated_at)
        keys = self._group_keys(_KeyRow(entity, *row) for row in rows)
        return {entity_ref.id: entity_keys for entity_ref, entity_keys in keys.items()}

    def fetch_versions(self, refs: Iterable[VersionRef]) -> FetchedVersions:
        """Return the versions with these keys.

        On one server a statement reads the versions of one kind, on a cluster those of one
        document. A statement reads at most READ_BYTES of snapshots, but always the first snapshot.
        Versions beyond this limit are in `unread`. Versions that are not stored any more are left
        out.
        """
        groups = _group_refs(refs)
        fetched = FetchedVersions([], [])
        # Look first for rows with these keys, then in blocks. Then look for rows once more: a day
        # may have been unpacked between the first two statements.
        for blocks in (False, True, False):
            fetched_refs = set(fetched.refs)
            missing_groups = {
                group: missing_refs
                for group, group_refs in groups.items()
                if (missing_refs := [ref for ref in group_refs if ref not in fetched_refs])
            }
            bounded = [
                statements.bound_statement(
                    statements.make_versions_sql(entity, blocks, id is not None),
                    {"id": id, **make_ref_values(group_refs, blocks)},
                    self.fields,
                )
                for (entity, id), group_refs in missing_groups.items()
            ]
            for (entity, _), raw_rows in zip(
                missing_groups, statements.fetch_pipelined(bounded), strict=True
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
        """Return all version keys of a document, and its newest versions up to each of `limits`.

        Args:
            limits: A version is up to a limit if its number is not higher and its moment is not
                later.
            count: How many versions to return for each limit, at most.

        Returns:
            The keys, and the versions from the newest down, until READ_BYTES of snapshots are read.
        """
        bodies, values = statements.bound_statement(
            format_sql(statements.NEWEST_VERSIONS_UP_TO, entity),
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
            format_sql(statements.KEYS_AND_NEWEST_VERSIONS, entity, bodies=bodies), values
        ):
            if damaged_at is not None:
                error = build_damage_error(entity.table, id, damaged_at)
                statements.note_damage(self.damaged, DamagedRef(entity, id, None), error)
                return NewestVersions([], [])
            bounded_row = BoundedRow._make(row)
            if numbers is not None:
                keys = sorted(map(VersionKey, numbers, moments))
            elif bounded_row.version is not None:
                rows.append(bounded_row)
        # A version that cannot be read raises no error here. If the caller needs it, the caller
        # reads it again by key, and that raises the error.
        return NewestVersions(keys, statements.decode_rows(entity, rows, {}).rows)

    def fetch_owners(self, entity: EntityKind, ids: Collection[str]) -> dict[str, set[str]]:
        """Return the applications that each document names in any version."""
        owners: dict[str, set[str]] = {}
        if not entity.is_standalone:
            text = format_sql(statements.OWNERS, entity)
            for id, application in children.fetch_for_ids(text, ids):
                owners.setdefault(id, set()).add(application)
        return owners

    def fetch_members(self, application: str) -> dict[EntityRef, list[VersionKey]]:
        """Return all version keys of an application and its children.

        A child is a document that names the application in any stored version.
        """
        if statements.is_distributed():
            listed_members = self._fetch_listed_members(application)
            if listed_members is not None:
                return listed_members
        texts = [
            statements.KEYS_OF_APPLICATION if kind.root else statements.KEYS_OF_CHILDREN
            for kind in PARTS
        ]
        text = " UNION ALL ".join(
            format_sql(text, kind) for text, kind in zip(texts, PARTS, strict=True)
        )
        rows = statements.fetch_rows(text, {"id": application})
        return self._group_keys(_KeyRow(ENTITIES[kind], *row) for kind, *row in rows)

    def fetch_application_page(
        self,
        query: TimelineQuery,
        after: TimelinePosition | None,
        limit: int,
        *,
        need_all_keys: bool = False,
    ) -> ApplicationPage:
        """Return the next versions of an application and its children, in display order.

        Also returns keys of each document on the page: enough to find the previous version of each
        version on the page.

        Args:
            after: The position after which the page begins; None for the first page.
            limit: How many versions to return, at most.
            need_all_keys: Return all keys of each document on the page.
        """
        if statements.is_distributed():
            listed_page = self._fetch_listed_page(query, after, limit, need_all_keys)
            if listed_page is not None:
                return listed_page
        stop_early = query.order is TimelineOrder.DESC and not query.filters.may_skip_versions
        text = statements.make_application_page_sql(query.order, stop_early)
        rows = statements.fetch_rows(text, _make_page_values(query, after, limit))
        # A row with a place is a version on the page. The other rows are the keys of all versions
        # of the documents on the page.
        page = sorted(row for row in rows if row[0] is not None)
        key_rows = (_KeyRow(ENTITIES[kind], *row) for place, kind, *row in rows if place is None)
        refs = [
            VersionRef(ENTITIES[kind], id, VersionKey(version, moment))
            for _, kind, id, version, moment, _ in page
        ]
        return ApplicationPage(refs, self._group_keys(key_rows))

    # On a cluster, each document of an application has its own statement, which asks one shard.

    def _fetch_listed_members(self, application: str) -> dict[EntityRef, list[VersionKey]] | None:
        """Return the result of `fetch_members`, but run one statement for each document.

        The documents are the application and the children that the table search_key lists for it.

        Returns:
            None if search_key may lack children of the application.
        """
        documents = _fetch_listed_documents(application, None, {}, in_all_days=True)
        if documents is None:
            return None
        return self._group_keys(
            row.key
            for rows in documents.values()
            if any(row.is_chosen for row in rows)
            for row in rows
        )

    def _fetch_listed_page(
        self,
        query: TimelineQuery,
        after: TimelinePosition | None,
        limit: int,
        need_all_keys: bool,
    ) -> ApplicationPage | None:
        """Return the result of `fetch_application_page`, but run one statement for each document.

        The documents are the application and the children that the table search_key lists for it.

        Returns:
            None if search_key may lack children of the application.
        """
        values = _make_page_values(query, after, limit)
        documents = _fetch_listed_documents(
            query.id, query.order, values, in_all_days=need_all_keys
        )
        if documents is None:
            return None
        chosen = [
            VersionRef(*entity_ref, VersionKey(row.key.version, row.key.updated_at))
            for entity_ref, rows in documents.items()
            for row in rows
            if row.is_chosen
        ]
        places = {entity_ref: place for place, entity_ref in enumerate(documents)}

        def get_order(ref: VersionRef) -> tuple[datetime, int, int, int]:
            place = places[ref.entity_ref]
            return ref.key.updated_at, ENTITIES.index(ref.entity), place, ref.key.version

        backwards = query.order is TimelineOrder.DESC
        refs = sorted(chosen, key=get_order, reverse=backwards)[:limit]
        on_page = dict.fromkeys(ref.entity_ref for ref in refs)
        unsure = [
            entity_ref
            for entity_ref in on_page
            if not (
                entity_ref.entity.root or need_all_keys or _is_whole_history(documents[entity_ref])
            )
        ]
        answers = statements.fetch_pipelined(
            [
                (
                    format_sql(statements.KEYS_OF_DOCUMENTS, entity),
                    {"ids": [id], "last": LAST.updated_at},
                )
                for entity, id in unsure
            ]
        )
        keys = {entity_ref: [row.key for row in documents[entity_ref]] for entity_ref in on_page}
        for entity_ref, rows in zip(unsure, answers, strict=True):
            keys[entity_ref] = [_KeyRow(entity_ref.entity, *row) for row in rows]
        return ApplicationPage(refs, self._group_keys(chain.from_iterable(keys.values())))

    def _group_keys(self, rows: Iterable[_KeyRow]) -> dict[EntityRef, list[VersionKey]]:
        """Return version keys by document, ascending. Documents with a damaged row are left out."""
        # Group by plain tuples: with an EntityRef for each key, this takes 1.5 times as long.
        keys_by_document: defaultdict[tuple[EntityKind, str], list[VersionKey]] = defaultdict(list)
        broken: dict[EntityRef, datetime] = {}
        for entity, id, version, updated_at, is_damaged in rows:
            keys_by_document[entity, id].append(VersionKey(version, updated_at))
            if is_damaged:
                broken[EntityRef(entity, id)] = updated_at
        for entity_ref, moment in broken.items():
            error = build_damage_error(entity_ref.entity.table, entity_ref.id, moment)
            statements.note_damage(self.damaged, DamagedRef(*entity_ref, None), error)
            del keys_by_document[entity_ref]
        return {EntityRef(*document): sorted(keys) for document, keys in keys_by_document.items()}


class _KeyRow(NamedTuple):
    """The key of one version, and whether its row is damaged."""

    entity: EntityKind
    id: str
    version: int
    updated_at: datetime
    is_damaged: bool


class _RefGroup(NamedTuple):
    """The kind or the document to which all versions that one statement reads belong."""

    entity: EntityKind
    id: str | None  # of the document; None if the versions only have the kind in common


class _DocumentKey(NamedTuple):
    """The key of a version, and whether `statements.make_document_keys_sql` chose the version."""

    key: _KeyRow
    # whether the version can be on the page; without a page, whether it names the application
    is_chosen: bool


def _fetch_listed_documents(
    application: str, order: TimelineOrder | None, values: Values, *, in_all_days: bool
) -> dict[EntityRef, list[_DocumentKey]] | None:
    """Return the version keys of an application and of the children that search_key lists for it.

    Makes two round trips.

    Args:
        order: See `statements.make_document_keys_sql`.
        in_all_days: Read all days of a child. False: read only the days in which the child names
            the application.

    Returns:
        The keys by document. Documents are ordered by kind, and within a kind as the database
        orders their ids. None if search_key may lack children.
    """
    all_days = {"first": FIRST.updated_at, "end": LAST.updated_at}

    def make_statement(entity: EntityKind, id: str, days: Values) -> Statement:
        text = statements.make_document_keys_sql(entity, order)
        return text, {**values, **days, "id": id, "application": application}

    roots = [EntityRef(kind, application) for kind in PARTS if kind.root]
    spans, root_rows = children.list_children(
        [application], [make_statement(*root, all_days) for root in roots]
    )
    if spans is None:
        return None
    child_rows = statements.fetch_pipelined(
        [
            make_statement(
                span.entity,
                span.id,
                all_days if in_all_days else {"first": span.first, "end": span.end},
            )
            for span in spans
        ]
    )
    entity_refs = [*roots, *(EntityRef(span.entity, span.id) for span in spans)]
    return {
        entity_ref: [
            _DocumentKey(_KeyRow(entity_ref.entity, *row), chosen) for *row, chosen in rows
        ]
        for entity_ref, rows in zip(entity_refs, [*root_rows, *child_rows], strict=True)
    }


def _is_whole_history(rows: Sequence[_DocumentKey]) -> bool:
    """Return whether these rows are certainly all versions of a document up to the newest of them.

    It is certain if the rows have each number from 0 on exactly once, and a higher number never has
    an earlier moment.

    Args:
        rows: The versions of one document in some days.
    """
    keys = sorted(VersionKey(row.key.version, row.key.updated_at) for row in rows)
    return all(key.version == number for number, key in enumerate(keys)) and all(
        earlier.updated_at <= later.updated_at for earlier, later in pairwise(keys)
    )


def _group_refs(refs: Iterable[VersionRef]) -> dict[_RefGroup, list[VersionRef]]:
    """Divide versions into groups. One statement reads the versions of one group.

    On one server, a group has the versions of one kind. On a cluster, a group has the versions of
    one document, and the statement asks one shard. But for more than MAX_STATEMENTS documents on a
    cluster, a group has the versions of one kind, and the statement asks all shards.
    """
    by_document: dict[_RefGroup, list[VersionRef]] = defaultdict(list)
    by_kind: dict[_RefGroup, list[VersionRef]] = defaultdict(list)
    for ref in refs:
        by_document[_RefGroup(ref.entity, ref.id)].append(ref)
        by_kind[_RefGroup(ref.entity, None)].append(ref)
    if len(by_document) > children.MAX_STATEMENTS or not statements.is_distributed():
        return by_kind
    return by_document


def make_ref_values(refs: Sequence[VersionRef], blocks: bool) -> Values:
    """Make the query parameters for the SQL that statements.make_versions_sql returns.

    Args:
        refs: The versions to read.
        blocks: The value of `blocks` in the call of make_versions_sql.
    """
    moments = [ref.key.updated_at for ref in refs]
    values: dict[str, object] = {
        "ids": [ref.id for ref in refs],
        "moments": moments,
        "numbers": [Int4(ref.key.version) for ref in refs],
        "first": min(moments),
        "last": max(moments),
    }
    if blocks:
        spans: dict[tuple[str, datetime], list[datetime]] = defaultdict(list)
        for ref in refs:
            moment = ref.key.updated_at
            spans[ref.id, statements.find_next_day(moment)].append(moment)
        ids, ends = zip(*spans, strict=True)
        values |= {
            "of": list(ids),
            "lows": [min(moments_of_day) for moments_of_day in spans.values()],
            "highs": [max(moments_of_day) for moments_of_day in spans.values()],
            "ends": list(ends),
            "end": max(ends),
        }
    return values
