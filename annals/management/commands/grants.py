"""`annals grants`: database rights, limits and login roles of the web server and consumer."""

from __future__ import annotations

import random
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from django.core.management.base import BaseCommand, CommandError

from history.common.explained_errors import FileError, read_text, refuse_open_secret

if TYPE_CHECKING:
    from psycopg import sql


# For how long `grants --apply` tries again while `partitions maintain` is running.
CONFLICT_WAIT_S: Final = 30.0


class NewLogin(NamedTuple):
    """A login of PostgreSQL that --login names. It is created, or its password is changed."""

    role: str
    name: str
    password: str


class Command(BaseCommand):
    help = (
        "Print or apply the SQL that gives the web and the consumer their database rights, and the "
        "logins their limits."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--apply", action="store_true", help="run the SQL, as the owner of the tables"
        )
        parser.add_argument(
            "--login",
            nargs=3,
            action="append",
            default=[],
            metavar=("ROLE", "NAME", "FILE"),
            help="with --apply: create the login NAME of the role `web` or `consumer`, or change "
            "its password; FILE has the password. Can be repeated. Needs CREATEROLE",
        )

    def handle(self, *_: Any, **options: Any) -> None:
        """Print the SQL, or run it."""
        from annals.access import grants
        from annals.access.grants import CONSUMER, WEB, generate_grants

        if not options["apply"]:
            if options["login"]:
                raise CommandError(
                    "--login needs --apply: without --apply the SQL is printed, and a password "
                    "must not be printed."
                )
            for statement in (
                *generate_grants(),
                *grants.generate_schema_revokes(),
                *grants.generate_limits(),
            ):
                self.stdout.write(f"{_render(statement)};")
            return
        new_logins = list(_read_logins(options["login"]))
        retry_catalog_conflict(lambda: _apply_grants(new_logins))
        unapplied = [
            statement
            for statement in list(grants.generate_limits())
            if not _execute_if_allowed(statement)
        ]
        for statement in grants.generate_schema_revokes():
            _execute_if_allowed(statement)
        # PostgreSQL only warns if it did not revoke a right, so look again.
        unapplied += grants.generate_schema_revokes()
        self.stdout.write(f"The roles {WEB} and {CONSUMER} have their rights.")
        if unapplied:
            text = "".join(f"\n{_render(statement)};" for statement in unapplied)
            raise CommandError(
                "The rights are applied, but this login may not run the following. Let an "
                f"administrator of PostgreSQL run it:{text}"
            )


def _apply_grants(new_logins: Iterable[NewLogin]) -> None:
    """Give the roles their rights and create the logins, in one transaction."""
    from django.db import connection, transaction
    from psycopg import sql

    from annals.access import grants
    from history.store import distribution

    with transaction.atomic():
        # People who log in meanwhile wait for the lock of auth_user.
        _execute([sql.SQL("SET LOCAL lock_timeout = '10s'").format()])
        # Citus changes rights on all nodes, and demands one session for each node.
        distribution.use_one_connection(connection.connection)
        _execute(grants.generate_grants())
        for login in new_logins:
            _refuse_other_rights(login.role, login.name)
            _execute(grants.generate_login(login.role, login.name, login.password))


def retry_catalog_conflict(apply: Callable[[], None]) -> None:
    """Call `apply`, and repeat it while it conflicts with a session that changes tables.

    `apply` runs a transaction. While `partitions maintain` runs, PostgreSQL may report "tuple
    concurrently updated", a table that is gone, or a deadlock. The transaction has then changed
    nothing.
    """
    from django.db import DatabaseError, connection
    from psycopg import errors

    conflicts = (
        errors.InternalError_,
        errors.DeadlockDetected,
        errors.UndefinedTable,
        errors.UniqueViolation,
    )
    deadline = time.monotonic() + CONFLICT_WAIT_S
    while True:
        try:
            return apply()
        except DatabaseError as error:
            is_conflict = isinstance(error.__cause__, conflicts)
            if not is_conflict or connection.in_atomic_block or time.monotonic() > deadline:
                raise
        time.sleep(random.uniform(0.05, 0.3))  # noqa: S311 - spread, not secrecy


def _read_logins(options: Iterable[list[str]]) -> Iterator[NewLogin]:
    """Read the logins that are given by the options `--login`.

    Raises:
        CommandError: A role does not exist, or a file does not have a password.
    """
    from annals.access.grants import CONSUMER, WEB

    roles = {"web": WEB, "consumer": CONSUMER}
    for role, name, file in options:
        if role not in roles:
            raise CommandError(f"--login {role}: the role must be web or consumer.")
        try:
            password = read_text(Path(file)).strip()
            if password:
                refuse_open_secret(Path(file))
        except FileError as error:
            raise CommandError(f"--login {role} {name}: {error}.") from None
        if not password:
            raise CommandError(f"{file} is empty: it must have the password of {name}.")
        yield NewLogin(roles[role], name, password)


def _refuse_other_rights(role: str, name: str) -> None:
    """Refuse a login that already has another role, because it would get the rights of both.

    Raises:
        CommandError: The login has another role.
    """
    from annals.access import grants

    if roles := grants.list_other_roles(role, name):
        raise CommandError(
            f"{name} already has the rights of {' and '.join(roles)}, and would get those of "
            f"{role} in addition. Nothing was changed. Give another name, or revoke the other "
            "rights first."
        )


def _execute(statements: Iterable[sql.Composed]) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(_render(statement))


def _execute_if_allowed(statement: sql.Composed) -> bool:
    """Run a statement. Returns False if this login may not run it."""
    from django.db import ProgrammingError, transaction
    from psycopg import errors

    try:
        with transaction.atomic():
            _execute([statement])
    except ProgrammingError as error:
        if isinstance(error.__cause__, errors.InsufficientPrivilege):
            return False
        raise
    return True


def _render(statement: sql.Composed) -> str:
    from django.db import connection

    connection.ensure_connection()
    return statement.as_string(connection.connection)
