"""`annals migrate` that stops neither ingest nor the web: it waits for no lock for long.

A migration that waits for the lock of a table makes everybody wait who comes after it. So it gives
up soon, lets the others pass, and tries again.
"""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.core.management.commands import migrate
from django.db import OperationalError, connections
from psycopg import errors

from annals.management.migrating import Blockers, consumers, limited, stops_ahead
from history import distribution, schema
from history.counted import counted
from history.management.numbers import MOST_SECONDS, number

# Less than the access journal waits (annals.access.journal.write), so that no answer is lost.
LOCK_SECONDS = 0.5
STATEMENT_SECONDS = 60.0
GIVE_UP_SECONDS = 300.0
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 10.0
SECONDS = number(0, MOST_SECONDS)


class Command(migrate.Command):
    help = (
        "Apply migrations without stopping ingest or the web: waits for a lock for a moment only, "
        "and tries again."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        add = parser.add_argument
        add("--lock-timeout", type=SECONDS, default=LOCK_SECONDS, metavar="SECONDS",
            help="seconds that a statement may wait for a lock; others wait behind it; 0 = no "
            "limit (default: %(default)s)")  # fmt: skip
        add("--statement-timeout", type=SECONDS, default=STATEMENT_SECONDS, metavar="SECONDS",
            help="seconds that a statement may take, with the locks that it has; 0 = no limit "
            "(default: %(default)s)")  # fmt: skip
        add("--give-up-after", type=SECONDS, default=GIVE_UP_SECONDS, metavar="SECONDS",
            help="seconds after which it does not try again for a lock "
            "(default: %(default)s)")  # fmt: skip

    def handle(self, *args: Any, **options: Any) -> None:
        """Migrate; exits with 1 and a sentence if a lock is not to be had or work takes too long.
        What was applied until then stays applied, and nothing half."""
        connection = connections[options["database"]]
        connection.ensure_connection()
        if distribution.on_worker(connection.connection):
            raise CommandError(
                "Nothing done: DATABASE_URL names a worker of a Citus cluster. Run migrate on the "
                "coordinator, which passes tables on to the workers (docs/citus.md)."
            )
        if (ahead := stops_ahead(connection)) and (running := consumers(connection)):
            raise CommandError(
                f"{schema.names(ahead)} needs a stop: consumers of an earlier release cannot work "
                f"after it. Connected: {counted(running, 'consumer')}. End them, run migrate "
                "again, and start those of this release. Kafka keeps the messages meanwhile."
            )
        end = time.monotonic() + options["give_up_after"]
        pause = FIRST_PAUSE_SECONDS
        while (blocked_by := self._attempt(args, options)) is not None:
            if time.monotonic() + pause > end:
                raise CommandError(
                    f"Gave up: a migration could not get its lock within "
                    f"{options['lock_timeout']:g} seconds, in all attempts of "
                    f"{options['give_up_after']:g} seconds. {_who(blocked_by)} Nothing is half "
                    "applied, and ingest and the web go on. Wait for that transaction or end it, "
                    "then run migrate again."
                )
            self.stderr.write(
                f"A migration waits for a lock. {_who(blocked_by)} Trying again in {pause:g} s."
            )
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _attempt(self, args: tuple[Any, ...], options: dict[str, Any]) -> set[str] | None:
        """None: done. Else who had the lock that it did not get."""
        connection = connections[options["database"]]
        connection.ensure_connection()
        blockers = Blockers(connection.connection.info.backend_pid)
        try:
            with (
                limited(connection, options["lock_timeout"], options["statement_timeout"]),
                blockers,
            ):
                super().handle(*args, **options)
        except OperationalError as error:
            if isinstance(error.__cause__, errors.LockNotAvailable | errors.DeadlockDetected):
                return blockers.seen
            if isinstance(error.__cause__, errors.QueryCanceled):
                raise CommandError(
                    f"A statement of a migration took more than {options['statement_timeout']:g} "
                    "seconds and was ended, because others wait for its locks. It is not applied. "
                    "Run migrate in a quiet hour with a longer --statement-timeout."
                ) from error
            raise
        return None


def _who(blockers: set[str]) -> str:
    return f"The lock is held by {', '.join(sorted(blockers))}." if blockers else ""
