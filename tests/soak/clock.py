"""A clock that is ahead by whole days, for real processes: in a file for Python, in a schema of the
database for SQL's now()."""

import struct
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg import sql

PATH = "public,clock,pg_catalog"
FILE_VARIABLE = "ANNALS_TEST_CLOCK_FILE"
_DAYS = struct.Struct("<q")

# PostgreSQL looks for now() in our schema before pg_catalog. Every login may call it.
_SCHEMA = """
CREATE SCHEMA clock;
CREATE TABLE clock.hands (ahead interval NOT NULL);
INSERT INTO clock.hands VALUES ('0');
CREATE FUNCTION clock.now() RETURNS timestamptz LANGUAGE sql STABLE SECURITY DEFINER
    AS 'SELECT pg_catalog.now() + ahead FROM clock.hands';
CREATE FUNCTION clock.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE SECURITY DEFINER
    AS 'SELECT pg_catalog.statement_timestamp() + ahead FROM clock.hands';
GRANT USAGE ON SCHEMA clock TO PUBLIC
"""
# Defaults of columns were bound to PostgreSQL's own functions when the tables were created.
_DEFAULTS = """
SELECT d.adrelid::regclass::text, a.attname
FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
    JOIN pg_class c ON c.oid = d.adrelid
WHERE c.relnamespace = 'public'::regnamespace
    AND pg_get_expr(d.adbin, d.adrelid) ~* 'now\\(\\)|statement_timestamp|current_timestamp'
"""


def build_moved_url(url: str) -> str:
    """Return the URL of a database for sessions that see the moved clock."""
    return f"{url}?options={quote(f'-c search_path={PATH}')}"


def read_lead(file: Path) -> timedelta:
    """Return how far the clock of this file is ahead."""
    return timedelta(days=_DAYS.unpack(file.read_bytes())[0])


class MovedClock:
    """Moves the clock of all processes that were started with this file, and of the database."""

    def __init__(self, file: Path, url: str) -> None:
        """url: the superuser's."""
        self.file, self._url, self.days = file, url, 0
        file.write_bytes(_DAYS.pack(0))
        with self._connect() as plain:
            plain.execute(_SCHEMA)
            for table, column in plain.execute(_DEFAULTS).fetchall():
                plain.execute(
                    sql.SQL("ALTER TABLE {} ALTER {} SET DEFAULT clock.now()").format(
                        sql.Identifier(*table.split(".")), sql.Identifier(column)
                    )
                )

    def get_now(self) -> datetime:
        return datetime.now(UTC) + timedelta(days=self.days)

    def move_to_next_day(self) -> None:
        """Move the clock ahead by a day."""
        self.days += 1
        with self._connect() as plain:
            plain.execute("UPDATE clock.hands SET ahead = %s", [timedelta(days=self.days)])
        # In place: a reader never finds it empty.
        with self.file.open("r+b", buffering=0) as file:
            file.write(_DAYS.pack(self.days))

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self._url, autocommit=True)
