"""The indexes by which changes are found across all documents.

The indexes belong to the partitioned tables, so each new day has them. `migrate` creates them for a
partitioned table without reading its days (ON ONLY). `maintain` adds them to older days, one day at
a time, while other processes read and write the day. docs/decisions/0049-changes.md has the
measurements.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import psycopg
from psycopg import sql

# An SQL expression for the people and services in a block: the author and the service of its row,
# and the lines of `names`.
BLOCK_NAMES: Final = "((string_to_array(names, E'\\n') || author::text) || client_id::text)"


class ChangeIndex(NamedTuple):
    """An index of a table of versions. Its name ends with `suffix`."""

    suffix: str
    definition: str


CHANGE_INDEXES: Final = (
    # Versions of a person on plain days, in the order of time.
    ChangeIndex(
        "by_author", "USING btree (author, updated_at) WHERE author IS NOT NULL AND packed IS NULL"
    ),
    # All versions of a period on plain days: rows are stored in about the order of time.
    ChangeIndex(
        "by_time",
        "USING brin (updated_at) WITH (pages_per_range = 32, autosummarize = on)"
        " WHERE packed IS NULL",
    ),
    # The blocks in which a person or service made a version.
    ChangeIndex("by_names", f"USING gin ({BLOCK_NAMES}) WHERE packed IS NOT NULL"),
)

_MAX_NAME = 63  # bytes of a name in PostgreSQL


def build_index_name(table: str, index: ChangeIndex) -> str:
    """Return the name of an index of a table.

    If the name would be longer than PostgreSQL allows, the name of the table loses its beginning,
    because its end is the day.
    """
    suffix = f"_{index.suffix}"
    return table.removesuffix("_aud")[len(suffix) - _MAX_NAME :] + suffix


class MissingIndex(NamedTuple):
    """An index that a partitioned table has, but one of its days does not have."""

    schema: str
    partition: str
    parent_index: str
    change_index: ChangeIndex


_MISSING: Final = """
SELECT parent.relname, child_schema.nspname, child.relname
FROM unnest(%(tables)s::text[], %(names)s::text[]) AS expected(table_name, index_name)
JOIN pg_class AS parent ON parent.relname = expected.index_name AND parent.relkind = 'I'
    AND parent.relnamespace = current_schema()::regnamespace
JOIN pg_index AS definition ON definition.indexrelid = parent.oid
JOIN pg_inherits AS days ON days.inhparent = definition.indrelid AND NOT days.inhdetachpending
JOIN pg_class AS child ON child.oid = days.inhrelid AND child.relkind = 'r'
JOIN pg_namespace AS child_schema ON child_schema.oid = child.relnamespace
WHERE NOT EXISTS (
    SELECT FROM pg_inherits AS attached JOIN pg_index AS part ON part.indexrelid = attached.inhrelid
    WHERE attached.inhparent = parent.oid AND part.indrelid = child.oid)
ORDER BY right(child.relname, 8) DESC, child.relname, parent.relname
"""


def find_missing(connection: psycopg.Connection[Any], tables: list[str]) -> list[MissingIndex]:
    """Return the indexes that days of these tables lack, newest days first."""
    indexes_by_name = {
        build_index_name(table, index): (table, index)
        for table in tables
        for index in CHANGE_INDEXES
    }
    values = {
        "tables": [table for table, _ in indexes_by_name.values()],
        "names": list(indexes_by_name),
    }
    rows = connection.execute(_MISSING, values).fetchall()
    return [
        MissingIndex(schema, partition, name, indexes_by_name[name][1])
        for name, schema, partition in rows
    ]


def add_to_day(connection: psycopg.Connection[Any], missing: MissingIndex) -> None:
    """Create the missing index of a day, and attach it to the index of the partitioned table.

    An index that a killed run left unfinished is replaced. Other sessions can read and write the
    day meanwhile. Needs a `connection` in autocommit mode.

    Raises:
        psycopg.errors.LockNotAvailable: A transaction that uses the day stays open. The unfinished
            index is removed.
    """
    index_name = build_index_name(missing.partition, missing.change_index)
    name = sql.Identifier(missing.schema, index_name)
    # CREATE INDEX takes the schema of its table.
    command = sql.SQL(
        "CREATE INDEX CONCURRENTLY {} ON {} " + missing.change_index.definition
    ).format(sql.Identifier(index_name), sql.Identifier(missing.schema, missing.partition))
    drop = sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(name)
    connection.execute(drop)
    try:
        connection.execute(command)
    except psycopg.Error:
        if not connection.broken:
            connection.execute(drop)
        raise
    attach = sql.SQL("ALTER INDEX {} ATTACH PARTITION {}")
    connection.execute(attach.format(sql.Identifier(missing.parent_index), name))


def build_commands(table: str) -> list[str]:
    """Return the commands that create the indexes of a partitioned table, but not of its days."""
    return [
        f'CREATE INDEX IF NOT EXISTS "{build_index_name(table, index)}" ON ONLY "{table}"'
        f" {index.definition}"
        for index in CHANGE_INDEXES
    ]
