"""`annals migrate`: applies migrations without stopping the consumers and the web.

While a migration waits for the lock of a table, all later sessions wait behind it. So the command
stops waiting soon, lets the other sessions pass, and tries again.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import ceil
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.core.management.commands import migrate
from django.db import Error, OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import errors

from history.management.numbers import MAX_SECONDS, make_number_parser
from history.store import distribution

# Shorter than the access journal waits for a lock, so that requests are not refused meanwhile.
LOCK_SECONDS = 0.5
STATEMENT_SECONDS = 60.0
GIVE_UP_SECONDS = 300.0
FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 10.0
SECONDS = make_number_parser(0, MAX_SECONDS)


class Command(migrate.Command):
    help = (
        "Apply migrations without stopping ingest or the web: waits for a lock for a moment only, "
        "and tries again."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        add = parser.add_argument
        add(
            "--statement-timeout",
            type=SECONDS,
            default=STATEMENT_SECONDS,
            metavar="SECONDS",
            help="seconds that a statement may take, with the locks that it has; 0 = no limit "
            "(default: %(default)s)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Apply the migrations, or raise CommandError if a lock or the work takes too long.

        Migrations that were applied before stay applied. No migration is applied in part.
        """
        connection = connections[options["database"]]
        connection.ensure_connection()
        if distribution.is_on_worker(connection.connection):
            raise CommandError(
                "Nothing done: DATABASE_URL names a worker of a Citus cluster. Run migrate on the "
                "coordinator, which passes tables on to the workers (docs/citus.md)."
            )
        end = time.monotonic() + GIVE_UP_SECONDS
        pause = FIRST_PAUSE_SECONDS
        while not self._try_to_migrate(args, options):
            if time.monotonic() + pause > end:
                raise CommandError(
                    f"Gave up after {GIVE_UP_SECONDS:g} s: each attempt waited "
                    f"{LOCK_SECONDS:g} s for a lock that a migration needs, and did not get it. "
                    "Nothing is half applied. Ingest and the web keep running. Find the long "
                    "transactions in pg_stat_activity, wait for them or end them, then run "
                    "migrate again."
                )
            self.stderr.write(f"A migration waits for a lock. Trying again in {pause:g} s.")
            time.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    def _try_to_migrate(self, args: tuple[Any, ...], options: dict[str, Any]) -> bool:
        """Apply the migrations. Returns False if one did not get its lock."""
        connection = connections[options["database"]]
        connection.ensure_connection()
        try:
            with limit_waits(connection, LOCK_SECONDS, options["statement_timeout"]):
                super().handle(*args, **options)
        except OperationalError as error:
            if isinstance(error.__cause__, errors.LockNotAvailable | errors.DeadlockDetected):
                return False
            if isinstance(error.__cause__, errors.QueryCanceled):
                raise CommandError(
                    f"A statement of a migration took more than {options['statement_timeout']:g} "
                    "seconds and was cancelled, so that its locks do not block other sessions. "
                    "The migration is not applied. Run migrate in a quiet hour with a longer "
                    "--statement-timeout."
                ) from error
            raise
        return True


@contextmanager
def limit_waits(
    connection: BaseDatabaseWrapper, lock_seconds: float, statement_seconds: float
) -> Iterator[None]:
    """Limit how long a statement in a `with` block can run, and how long it can wait for a lock.

    0 means no limit.
    """
    limits = {"lock_timeout": lock_seconds, "statement_timeout": statement_seconds}
    with connection.cursor() as cursor:
        for name, seconds in limits.items():
            # Rounded up, because 0 means no limit.
            limit = ceil(seconds * 1000)
            cursor.execute("SELECT set_config(%s, %s, false)", [name, f"{limit}ms"])
    try:
        yield
    finally:
        with suppress(Error), connection.cursor() as cursor:
            for name in limits:
                cursor.execute(f"RESET {name}")
