"""Creates the tables of declared kinds, which do not have migrations. Never drops a table."""

import sys
from typing import Any, Final, TextIO, TypeAlias

from django.core.checks import CheckMessage, Warning
from django.db import DatabaseError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import sql

from history.kinds import load_shipped_kinds
from history.kinds.entities import ENTITIES, EntityKind
from history.models import VERSION_MODELS
from history.store import change_indexes, distribution

Tables: TypeAlias = set[str]

# Returns the tables of versions. The schema may also have tables of other applications with names
# that end in _aud: tables of Annals are recognized by their columns.
_TABLES_OF_VERSIONS = """
SELECT relname FROM pg_class WHERE relkind = 'p' AND right(relname, 4) = '_aud'
    AND relnamespace = current_schema()::regnamespace
    AND 7 = (SELECT count(*) FROM pg_attribute WHERE attrelid = pg_class.oid AND NOT attisdropped
        AND (attname, atttypid) IN (('id', 'varchar'::regtype), ('version', 'int4'::regtype),
            ('data', 'jsonb'::regtype), ('updated_at', 'timestamptz'::regtype),
            ('client_id', 'varchar'::regtype), ('author', 'varchar'::regtype),
            ('type', 'int4'::regtype)))
"""
# The tables of the shipped kinds get the compression LZ4 from the migration 0001_release_0_1_0.
# This statement returns whether the server has LZ4.
_HAS_LZ4 = """
SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression'
"""
_COMPRESS_WITH_LZ4: Final = sql.SQL("ALTER TABLE {table} ALTER COLUMN data SET COMPRESSION lz4")


def create_missing(
    *, using: str, verbosity: int = 0, stdout: TextIO | None = None, **_: Any
) -> None:
    """Create the missing tables of kinds without migrations, and complete all tables of versions.

    Each table is created in a separate transaction, with its indexes. Then every table of versions
    that lacks the columns for blocks or the indexes for changes gets them, even if migrations
    created the table. Django calls this function after `migrate` (post_migrate).
    """
    connection = connections[using]
    existing_tables = _list_tables(connection)
    for entity in ENTITIES:
        if entity.table in existing_tables or entity in load_shipped_kinds():
            continue
        _create_table(connection, entity)
        if verbosity > 0:
            (stdout or sys.stdout).write(f"  Made the table {entity.table} ({entity.name})\n")
    known_tables = {entity.table for entity in (*ENTITIES, *load_shipped_kinds())}
    for table in sorted(known_tables & _list_tables(connection)):
        _add_columns(connection, table)
        _add_indexes(connection, table)


# The columns of packed blocks. The models do not have them: only SQL writes and reads blocks.
_ADD_BLOCK_COLUMNS: Final = sql.SQL("""
ALTER TABLE {table} ALTER data DROP NOT NULL, ADD unpacked int4, ADD keys bytea,
    ADD versions int4[], ADD names varchar, ADD packed bytea
""")
# PostgreSQL need not try to compress blocks: they are compressed already.
_STORE_BLOCKS_AS_THEY_ARE: Final = sql.SQL("ALTER TABLE {table} ALTER packed SET STORAGE EXTERNAL")
# Citus refuses SET STORAGE, and does not pass the STORAGE of a new column on to the shards.
_ADD_BLOCK_COLUMNS_ON_CLUSTER: Final = sql.SQL("""
ALTER TABLE {table} ALTER data DROP NOT NULL, ADD unpacked int4, ADD keys bytea,
    ADD versions int4[], ADD names varchar, ADD packed bytea STORAGE EXTERNAL
""")
# Returns whether a table has the columns of blocks.
_HAS_BLOCK_COLUMNS: Final = """
SELECT EXISTS (SELECT FROM pg_attribute
    WHERE attrelid = %(table)s::regclass AND attname = 'keys' AND NOT attisdropped)
"""


def _add_columns(connection: BaseDatabaseWrapper, table: str) -> None:
    connection.ensure_connection()
    name = sql.Identifier(table)
    with transaction.atomic(connection.alias), connection.cursor() as cursor:
        cursor.execute(_HAS_BLOCK_COLUMNS, {"table": name.as_string()})
        if cursor.fetchone() == (True,):
            return
        if distribution.is_distributed_table(connection.connection, table):
            _add_columns_on_cluster(cursor, name)
            # run_command_on_shards uses other sessions, which see the columns after the commit.
            transaction.on_commit(
                lambda: _set_storage_on_shards(connection.cursor(), name), using=connection.alias
            )
        else:
            # Two calls, because a prepared statement can have only one command.
            cursor.execute(_ADD_BLOCK_COLUMNS.format(table=name))
            cursor.execute(_STORE_BLOCKS_AS_THEY_ARE.format(table=name))


def _add_indexes(connection: BaseDatabaseWrapper, table: str) -> None:
    """Create the indexes for `GET changes` on a partitioned table, but not on the partitions.

    `maintain` creates the indexes on the partitions.
    """
    with connection.cursor() as cursor:
        for command in change_indexes.build_commands(table):
            cursor.execute(command)


def _add_columns_on_cluster(cursor: Any, name: sql.Identifier) -> None:
    """Add the columns of blocks to a distributed table and its shards.

    Citus refuses SET STORAGE, and does not pass the STORAGE of a new column on to the shards.
    """
    distribution.use_one_connection(cursor.connection)
    cursor.execute(_ADD_BLOCK_COLUMNS_ON_CLUSTER.format(table=name))


def _set_storage_on_shards(cursor: Any, name: sql.Identifier) -> None:
    cursor.execute(
        "SELECT result FROM run_command_on_shards(%s,"
        " 'ALTER TABLE %%s ALTER packed SET STORAGE EXTERNAL') WHERE NOT success",
        [name.as_string()],
    )
    if (failure := cursor.fetchone()) is not None:
        raise DatabaseError(f"a shard of {name.as_string()} was not changed: {failure[0]}")


def _list_tables(connection: BaseDatabaseWrapper) -> Tables:
    with connection.cursor() as cursor:
        cursor.execute(_TABLES_OF_VERSIONS)
        return {name for (name,) in cursor.fetchall()}


def _create_table(connection: BaseDatabaseWrapper, entity: EntityKind) -> None:
    with connection.schema_editor() as editor:
        editor.create_partitioned_model(VERSION_MODELS[entity.name])  # type: ignore[attr-defined]
    with connection.cursor() as cursor:
        cursor.execute(_HAS_LZ4)
        (has_lz4,) = cursor.fetchone() or (False,)
        if has_lz4:
            cursor.execute(_COMPRESS_WITH_LZ4.format(table=sql.Identifier(entity.table)))


def report_undeclared(*, databases: list[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Return the warning history.W001 for each table with a kind that is no longer declared."""
    warnings: list[CheckMessage] = []
    for alias in databases or []:
        known_tables = {entity.table for entity in (*ENTITIES, *load_shipped_kinds())}
        undeclared_tables = _list_tables(connections[alias]) - known_tables
        warnings += [
            Warning(
                f"The kind of the table {table} is not declared: nobody sees its versions, "
                "and its days are neither created nor dropped.",
                hint="Declare its kind again in the file of ANNALS_ENTITIES_FILE, or archive the "
                "table and drop it. See docs/kinds.md.",
                obj=f"PostgreSQL ({alias})",
                id="history.W001",
            )
            for table in sorted(undeclared_tables)
        ]
    return warnings
