"""A moved clock: it is whole days ahead of the real time, for processes and for SQL.

Python reads the number of days from a file. The SQL function now() reads the number of days from a
table in the database.
"""

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

# PostgreSQL finds the function now() of this schema before the one of pg_catalog. Every login may
# call it.
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
# Finds the columns whose default calls a clock function of pg_catalog. Such a default was bound to
# this function when its table was created, so the search path does not change it.
_DEFAULTS = """
SELECT d.adrelid::regclass::text, a.attname
FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
    JOIN pg_class c ON c.oid = d.adrelid
WHERE c.relnamespace = 'public'::regnamespace
    AND pg_get_expr(d.adbin, d.adrelid) ~* 'now\\(\\)|statement_timestamp|current_timestamp'
"""


def build_moved_url(url: str) -> str:
    """Add an option to the database URL, so that now() in its sessions returns the moved time."""
    return f"{url}?options={quote(f'-c search_path={PATH}')}"


def read_lead(file: Path) -> timedelta:
    """Return how far a moved clock is ahead of the real time. The file has the number of days."""
    return timedelta(days=_DAYS.unpack(file.read_bytes())[0])


class MovedClock:
    """A clock that can be moved days ahead. A database and many processes use the clock.

    A process uses the clock if tests.soak.moved started the process. The environment variable
    ANNALS_TEST_CLOCK_FILE of the process must have the path of the clock's file.
    """

    def __init__(self, file: Path, url: str) -> None:
        """Create the file and a schema in the database. At first the clock has the real time.

        Args:
            url: A URL of the database with the superuser's login.
        """
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
        # The file is overwritten in place, so that readers never find it empty.
        with self.file.open("r+b", buffering=0) as file:
            file.write(_DAYS.pack(self.days))

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self._url, autocommit=True)
