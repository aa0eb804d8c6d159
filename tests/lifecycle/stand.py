"""The environment of one lifecycle run: a database, an archive, and a clock that the test moves."""

import contextlib
import io
import itertools
import logging
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import psycopg
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection
from psycopg.conninfo import make_conninfo

from annals.management.partitions import nightly
from history.common import clock
from history.kinds import entities
from history.kinds.entities import EntityKind
from history.retention import plan
from history.store.blocks import dictionaries
from history.store.blocks.dictionaries import Dictionary
from history.store.database import forms
from ingest.completeness.holds import find_days_to_hold, find_unsettled_days
from ingest.store import fast_path, session
from tests.lifecycle.sent import ENTITIES

START = datetime(2026, 3, 29, 12, tzinfo=UTC)  # the day Berlin's clocks go forward
RETENTION, AHEAD, HOLD, SEAL = 2, 3, 2, 1
# How far the clock of a simulated process is wrong. Each thread simulates one process.
clock_error = threading.local()
TRACEBACK = 70  # the exit code of a command that ends with an exception

# PostgreSQL finds the function now() of this schema before the one of pg_catalog, so SQL uses the
# test's clock too. A trigger copies messages that are deleted from quarantine, so that the checks
# know their last state.
_CLOCK = """
CREATE SCHEMA clock;
CREATE TABLE clock.hands (moment timestamptz NOT NULL);
INSERT INTO clock.hands VALUES ('{start}');
CREATE FUNCTION clock.now() RETURNS timestamptz LANGUAGE sql STABLE
    AS 'SELECT moment FROM clock.hands';
CREATE TABLE clock.removed (LIKE public.ingest_quarantine);
CREATE FUNCTION clock.keep() RETURNS trigger LANGUAGE plpgsql
    AS 'BEGIN INSERT INTO clock.removed SELECT OLD.*; RETURN NULL; END';
CREATE TRIGGER keep AFTER DELETE ON public.ingest_quarantine
    FOR EACH ROW EXECUTE FUNCTION clock.keep()
"""
OURS = ("annals.", "history.", "ingest.")
_TEMPLATE = "lifecycle_template"
_numbers = itertools.count()


@dataclass(frozen=True)
class LifecycleResult:
    """The exit code of an act, such as a command of Annals, and its output."""

    code: int = 0
    output: str = ""  # of a command: standard error and, if the command failed, standard output


PATH = "public,clock,pg_catalog"


class LifecycleStand:
    """One database and one archive. The owner of an instance must call close()."""

    def __init__(self) -> None:
        self.name = f"lifecycle_{next(_numbers)}"
        self.archive = Path(tempfile.mkdtemp(prefix="lifecycle-", dir=_find_memory_folder()))
        # Sessions of commands and consumers use now() of the schema clock.
        self._options = connection.settings_dict["OPTIONS"]
        moved = str(self._options["options"]).replace("search_path=public", f"search_path={PATH}")
        connection.settings_dict["OPTIONS"] = {**self._options, "options": moved}
        session.SEARCH_PATH = PATH
        with _connect_to_server() as server:
            server.execute(f"CREATE DATABASE {self.name} TEMPLATE {_TEMPLATE} STRATEGY file_copy")
            server.execute(
                f"ALTER DATABASE {self.name} SET search_path = public, clock, pg_catalog"
            )
        connection.settings_dict["NAME"] = self.name
        self.plain = _connect(self.name)
        # The ledger records no heartbeats of the moved clock, so maintain would think that no
        # consumer runs, and would hold days. tests/db/test_partition_holds.py tests that case.
        nightly.FIND_HELD_DAYS = find_unsettled_days
        self.set_retention(RETENTION)
        self.set_clock(START)

    def set_retention(self, days: int) -> None:
        settings.ANNALS = msgspec.structs.replace(
            settings.ANNALS,
            retention_days=days,
            ahead_days=AHEAD,
            hold_days=HOLD,
            seal_days=SEAL,
            archive_url=str(self.archive),
        )

    def set_clock(self, now: datetime) -> None:
        self.plain.execute("UPDATE clock.hands SET moment = %s", [now])
        fast_path.SERVER_TIMES.clear()
        clock.now = lambda: now + getattr(clock_error, "days", timedelta(0))

    def connect(self) -> psycopg.Connection[Any]:
        """Open a new session in autocommit mode."""
        return _connect(self.name)

    def connect_as_an_earlier_release(self) -> psycopg.Connection[Any]:
        """Open the session of a consumer that does not announce which form of data it reads."""
        return _connect(self.name, application_name="annals-consume")

    def wait_for_end(self, pids: list[int]) -> None:
        """Wait until the server has ended these sessions."""
        while (
            pids
            and self.plain.execute(
                "SELECT FROM pg_stat_activity WHERE pid = ANY(%s)", [pids]
            ).fetchone()
        ):
            time.sleep(0.001)

    def list_waiting(self) -> list[int]:
        """Return the process ids of the sessions of this database that wait for a lock."""
        rows = self.plain.execute(
            "SELECT pid FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return [pid for (pid,) in rows]

    def terminate(self, pids: list[int]) -> None:
        self.plain.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s::int[]) pid", [pids])

    def close(self) -> None:
        connection.close()
        connection.settings_dict["OPTIONS"] = self._options
        session.SEARCH_PATH = "public"
        nightly.FIND_HELD_DAYS = find_days_to_hold
        self.plain.close()
        with _connect_to_server() as server:
            server.execute(f"DROP DATABASE {self.name} WITH (FORCE)")
        shutil.rmtree(self.archive)


@contextlib.contextmanager
def set_wrong_clock(days: int) -> Iterator[None]:
    """Let this thread simulate a process with a clock that is `days` days ahead.

    The clock of PostgreSQL stays right.
    """
    clock_error.days = timedelta(days=days)
    try:
        yield
    finally:
        clock_error.days = timedelta(0)


def run_command(*words: str) -> LifecycleResult:
    """Run a command of `manage.py` on this thread's connection."""
    output, errors = io.StringIO(), io.StringIO()
    code = 0
    try:
        call_command(*words, stdout=output, stderr=errors)
    except SystemExit as error:
        code = int(error.code or 0)
    except CommandError as error:
        code = error.returncode
        errors.write(str(error))
    except Exception:
        code = TRACEBACK
        errors.write(traceback.format_exc())
    # Commands print their findings to standard output. They matter only if the command failed.
    return LifecycleResult(code, (output.getvalue() if code else "") + errors.getvalue())


@contextlib.contextmanager
def prepare_template() -> Iterator[None]:
    """Create the template of all test databases, and drop it when the `with` block ends.

    Inside the `with` block the process has the settings and the clock of the lifecycle test.
    """
    annals, now, before = settings.ANNALS, clock.now, dict(connection.settings_dict)
    options = {**connection.settings_dict["OPTIONS"]}
    options.pop("pool", None)
    connection.close()
    connection.settings_dict.update(NAME=_TEMPLATE, OPTIONS=options)
    settings.ANNALS = msgspec.structs.replace(annals, demo=False)
    logging.disable(logging.INFO)
    try:
        with _connect_to_server() as server:
            server.execute(f"DROP DATABASE IF EXISTS {_TEMPLATE}")
            server.execute(f"CREATE DATABASE {_TEMPLATE}")
        call_command("migrate", "--verbosity=0")
        connection.close()
        with _connect(_TEMPLATE) as plain:
            plain.execute(_CLOCK.format(start=START.isoformat()))
            for entity in ENTITIES:  # the days are too small to train a dictionary
                text = f'{{"of": "{entity.name}", "exact": 12345678901234567890.10, "number": "N'
                dictionaries.store_dictionary(plain, entity.table, Dictionary(text.encode()))
        with _reduce_work(ENTITIES):
            yield
    finally:
        logging.disable(logging.NOTSET)
        connection.close()
        with _connect_to_server() as server:
            server.execute(f"DROP DATABASE IF EXISTS {_TEMPLATE}")
        settings.ANNALS, clock.now = annals, now
        connection.settings_dict.update(before)


@contextlib.contextmanager
def _reduce_work(few: tuple[EntityKind, ...]) -> Iterator[None]:
    """Shorten the lifecycle test by two thirds during the `with` block.

    In all modules of Annals, the lists of kinds have only the kinds `few`. `partitions maintain`
    creates `ahead_days` + 1 days ahead instead of `ahead_days` + 7 days. Packing waits only 0.2
    seconds for sessions to announce which form of data they read.
    """
    versions = tuple(item for item in plan.VERSION_TABLES if item.rows in few)
    swaps: dict[int, object] = {id(entities.ENTITIES): few, id(plan.VERSION_TABLES): versions}
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(plan, "SPARE_DAYS", 1))
        stack.enter_context(mock.patch.object(forms, "ANNOUNCED_S", 0.2))
        for module in [item for name, item in sys.modules.items() if name.startswith(OURS)]:
            for name, value in list(vars(module).items()):
                if id(value) in swaps:
                    stack.enter_context(mock.patch.object(module, name, swaps[id(value)]))
        yield


def _connect(database: str, **more: str) -> psycopg.Connection[Any]:
    url = make_conninfo(settings.ANNALS.database_url or "", dbname=database, **more)
    return psycopg.connect(url, autocommit=True)


def _connect_to_server() -> psycopg.Connection[Any]:
    return _connect("postgres")


def _find_memory_folder() -> str | None:
    """Return /dev/shm, where a sync of the archive takes no time, or None if it does not exist."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108
