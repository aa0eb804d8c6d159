"""The children of applications on a cluster, as the table search_key lists them.

Without this list, a statement for an application would ask all shards, and each of them would
search every day. The list of an application is on one shard. For each child it has the first and
the last day with versions, so that a statement for a child asks one shard, and only for these days.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, NamedTuple

from psycopg.types.numeric import Int4

from history.kinds.entities import BY_NAME, CHILDREN, ENTITIES, EntityKind
from history.store.database.prepared import FetchedRows, Statement
from history.store.search_index import children as search_rows
from history.timeline.sources import statements

DAY: Final = timedelta(days=1)
MAX_STATEMENTS: Final = 100
"""How many statements, each for one document, a round trip may have.

For more documents, or for applications with more children, one statement asks all shards instead.
"""

# Returns whether search_key lists all children. It does once `annals search index` has recorded
# %(mark)s, and as long as no partition is older than the newest day up to which `maintain` removed
# keys. An older partition was restored, or made for a late version: its children may not be listed
# any more. The name of a partition ends with its day.
_IS_COMPLETE: Final = """
    SELECT EXISTS (SELECT FROM django_migrations WHERE app = 'history' AND name = %(mark)s)
        AND NOT EXISTS (
            SELECT FROM pg_inherits JOIN pg_class AS day ON day.oid = inhrelid
            WHERE inhparent IN (SELECT to_regclass(name) FROM unnest(%(tables)s::text[]) AS name)
                AND right(day.relname, 8) < (
                    SELECT to_char(max(search_keys_before), 'YYYYMMDD') FROM maintain_run))
"""
# Returns the children that search_key lists for an application, with their first and newest day.
_CHILDREN: Final = """
    SELECT value, entity, id, first_day, day FROM search_key
    WHERE value = %(application)s AND name = %(name)s ORDER BY id LIMIT %(limit)s
"""


class ChildSpan(NamedTuple):
    """A child of an application, and the days in which its versions name the application."""

    application: str
    entity: EntityKind
    id: str
    first: datetime  # the beginning of the first day
    end: datetime  # the end of the last day, excluded


class ListedChildren(NamedTuple):
    """The children that `list_children` found, and the rows of the caller's statements."""

    # the children that the table search_key lists; None if it may lack children, or lists too many:
    # then the caller must read the tables of versions
    spans: list[ChildSpan] | None
    rows: list[FetchedRows]  # the rows of each statement in `others` of `list_children`


def list_children(
    applications: Collection[str], others: Sequence[Statement] = ()
) -> ListedChildren:
    """List the children of applications on a cluster. Makes one round trip.

    Args:
        others: Statements of the caller that run in the same round trip.
    """
    values = {"name": search_rows.KEY_NAME, "limit": Int4(MAX_STATEMENTS + 1)}
    tables = [entity.table for entity in CHILDREN]
    answers = statements.fetch_pipelined(
        [
            (_IS_COMPLETE, {"mark": search_rows.MARK, "tables": tables}),
            *((_CHILDREN, {**values, "application": id}) for id in applications),
            *others,
        ]
    )
    count = len(applications)
    rows = [row for answer in answers[1 : count + 1] for row in answer]
    others_rows = answers[count + 1 :]
    if answers[0] != [(True,)] or len(rows) > MAX_STATEMENTS:
        return ListedChildren(None, others_rows)
    spans = [
        ChildSpan(application, BY_NAME[kind], id, _begin_day(first_day), _begin_day(day + DAY))
        for application, kind, id, first_day, day in rows
        if kind in BY_NAME
    ]
    # Ids stay in the order of the database, which may not be that of Python.
    spans.sort(key=lambda span: (span.application, ENTITIES.index(span.entity)))
    return ListedChildren(spans, others_rows)


def group_ids(ids: Collection[str]) -> list[list[str]]:
    """Divide ids of documents into groups, each for one statement.

    On a cluster a group has one id. On one server, or if there are more than MAX_STATEMENTS ids,
    all ids are one group.
    """
    if len(ids) < 2 or len(ids) > MAX_STATEMENTS or not statements.is_distributed():
        return [list(ids)]
    return [[id] for id in ids]


def fetch_for_ids(text: str, ids: Collection[str], **values: object) -> FetchedRows:
    """Run a statement about the documents `ids`, and return its rows. Makes one round trip.

    On a cluster, the round trip has one statement for each document, which asks only one shard. For
    more than MAX_STATEMENTS documents, it has one statement, which asks all shards.

    Args:
        text: A statement with the parameter `ids`. Each row that it returns is about one document.
    """
    answers = statements.fetch_pipelined(
        [(text, {**values, "ids": group}) for group in group_ids(ids)]
    )
    return [row for rows in answers for row in rows]


def _begin_day(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
