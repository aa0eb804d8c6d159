"""What `annals grants` does."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import ProgrammingError, connection, transaction
from psycopg import errors, sql

from annals.access import grants
from annals.access.grants import CONSUMER, WEB, statements
from history import distribution
from history.failure.complaints import FileError, read_text, refuse_open_secret

ROLES = {"web": WEB, "consumer": CONSUMER}


def run(command: BaseCommand, **options: Any) -> None:
    """Print the SQL or run it. options: as the command declares them. Raises CommandError."""
    if not options["apply"]:
        if options["login"]:
            raise CommandError("--login needs --apply: a password is not printed.")
        for statement in (*statements(), *grants.closing(), *grants.limits()):
            command.stdout.write(f"{_text(statement)};")
        return
    asked = list(_asked(options["login"]))
    with transaction.atomic():
        # Who logs in waits for auth_user meanwhile.
        _run([sql.SQL("SET LOCAL lock_timeout = '10s'").format()])
        # Rights and the function are given to all nodes: over one session of each, Citus asks.
        distribution.one_by_one(connection.connection)
        _run(statements())
        for role, name, password in asked:
            _refuse_other_rights(role, name)
            _run(grants.make(role, name, password))
    left = [statement for statement in list(grants.limits()) if not _allowed(statement)]
    for statement in grants.closing():
        _allowed(statement)
    # PostgreSQL only warns of rights that it did not take away.
    left += grants.closing()
    command.stdout.write(f"The roles {WEB} and {CONSUMER} have their rights.")
    if left:
        text = "".join(f"\n{_text(statement)};" for statement in left)
        raise CommandError(
            "The rights are applied, but this login may not run the following. Let an "
            f"administrator of PostgreSQL run it:{text}"
        )


def _asked(given: Iterable[list[str]]) -> Iterator[tuple[str, str, str]]:
    """Role, login and password of each --login."""
    for role, name, file in given:
        if role not in ROLES:
            raise CommandError(f"--login {role}: the role must be web or consumer.")
        try:
            password = read_text(Path(file)).strip()
            if password:
                refuse_open_secret(Path(file))
        except FileError as error:
            raise CommandError(f"--login {role} {name}: {error}.") from None
        if not password:
            raise CommandError(f"{file} is empty: it must have the password of {name}.")
        yield ROLES[role], name, password


def _refuse_other_rights(role: str, name: str) -> None:
    """A login with two roles would have the rights of both."""
    if others := grants.other_roles(role, name):
        raise CommandError(
            f"{name} has the rights of {' and '.join(others)}: as a login of {role} too, it would "
            "have both. Nothing is changed. Give another name, or take those rights away first."
        )


def _run(given: Iterable[sql.Composed]) -> None:
    with connection.cursor() as cursor:
        for statement in given:
            cursor.execute(_text(statement))


def _allowed(statement: sql.Composed) -> bool:
    """Run a statement; False if the login may not."""
    try:
        with transaction.atomic():
            _run([statement])
    except ProgrammingError as error:
        if isinstance(error.__cause__, errors.InsufficientPrivilege):
            return False
        raise
    return True


def _text(statement: sql.Composed) -> str:
    connection.ensure_connection()
    return statement.as_string(connection.connection)
