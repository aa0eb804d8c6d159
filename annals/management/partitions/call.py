"""One call of `annals partitions`, with the helpers that several verbs share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import psycopg
from django.conf import settings
from django.core.management.base import OutputWrapper
from django.db import connection

from annals.access.journal.days import JournalRows
from history.common import clock
from history.common.error_sentences import explain_known_error
from history.common.error_text import describe
from history.common.explained_errors import ExplainedError
from history.kinds.entities import BY_NAME, ENTITIES, EntityKind
from history.retention.archive.store import ArchiveError, ArchiveStore
from history.retention.run_lock import hold_run_lock
from history.store.days.canonical import Connection

Chosen = TypeVar("Chosen", EntityKind, JournalRows)


@dataclass(frozen=True)
class PartitionsCall:
    """One call of the command: its options and output streams."""

    options: dict[str, Any]
    stdout: OutputWrapper
    stderr: OutputWrapper

    def choose_entities(self) -> list[EntityKind]:
        """Return the kind that --entity names, or all kinds."""
        name = self.options["entity"]
        return [BY_NAME[name]] if name else list(ENTITIES)

    def run_locked(self, act: Callable[[Connection, EntityKind], str]) -> int:
        """Take the run lock, and call `act` for each chosen kind.

        Args:
            act: Works on one kind, and returns the line to print.

        Returns:
            The exit code.

        Raises:
            WrongClockError: The clock of this machine or of the database server is wrong, so this
                process cannot decide which days are finished.
            NoRunLockError: A different run of `partitions` is working on this database.
        """
        require_right_clock()
        with hold_run_lock():
            return self.run_for_each(act, self.choose_entities())

    def run_for_each(
        self, act: Callable[[Connection, Chosen], str], targets: Sequence[Chosen]
    ) -> int:
        """Call `act` for each target, print each result at once, and return the exit code.

        If `act` fails for a target, the error is printed, and the next target follows. Only the
        loss of the connection ends the loop, because the run lock is lost with the connection.

        Args:
            act: Works on one target, and returns the line to print.

        Returns:
            0, or 2 if `act` failed for a target.
        """
        connection.ensure_connection()
        code = 0
        for target in targets:
            try:
                self.stdout.write(act(connection.connection, target))
            except (ExplainedError, OSError, psycopg.Error) as error:
                if connection.connection is None or connection.connection.closed:
                    raise
                self.stderr.write(f"{target.name}: {explain_known_error(error) or describe(error)}")
                code = 2
        return code


def require_right_clock() -> None:
    """Check that this machine and the database server agree on the time.

    Raises:
        WrongClockError: The two clocks differ too much.
    """
    connection.ensure_connection()
    clock.check_clocks(connection.connection)


def open_archive() -> ArchiveStore:
    """Return the archive of this installation.

    Raises:
        ArchiveError: ANNALS_ARCHIVE_URL is not set.
    """
    url = settings.ANNALS.archive_url
    if not url:
        raise ArchiveError("ANNALS_ARCHIVE_URL is not set, so there is no archive")
    return ArchiveStore(url)


def format_sentence(text: str) -> str:
    """Return the text with a capital at its beginning and a full stop at its end."""
    return f"{text[:1].upper()}{text[1:]}."
