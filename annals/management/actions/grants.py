"""The action of `annals grants`: prints or applies rights, limits and logins."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import ProgrammingError, connection, transaction
from psycopg import errors, sql

from annals.access import grants
from annals.access.grants import CONSUMER, WEB, generate_grants
from history.common.complaints import FileError, read_text, refuse_open_secret
from history.store import distribution

ROLES_BY_NAME = {"web": WEB, "consumer": CONSUMER}


def run(command: BaseCommand, **options: Any) -> None:
    """Print the SQL or run it. Raises CommandError."""
    if not options["apply"]:
        if options["login"]:
            raise CommandError("--login needs --apply: a password is not printed.")
        for statement in (
            *generate_grants(),
            *grants.generate_schema_closing(),
            *grants.generate_limits(),
        ):
            command.stdout.write(f"{_render(statement)};")
        return
    new_logins = list(_read_logins(options["login"]))
    with transaction.atomic():
        # A person who logs in waits for the lock of auth_user meanwhile.
        _execute([sql.SQL("SET LOCAL lock_timeout = '10s'").format()])
        # Citus changes rights on all nodes, and demands one session for each node.
        distribution.use_one_connection(connection.connection)
        _execute(generate_grants())
        for role, name, password in new_logins:
            _refuse_other_rights(role, name)
            _execute(grants.generate_login(role, name, password))
    unapplied = [
        statement
        for statement in list(grants.generate_limits())
        if not _execute_if_allowed(statement)
    ]
    for statement in grants.generate_schema_closing():
        _execute_if_allowed(statement)
    # PostgreSQL only warns if it did not revoke a right, so look again.
    unapplied += grants.generate_schema_closing()
    command.stdout.write(f"The roles {WEB} and {CONSUMER} have their rights.")
    if unapplied:
        text = "".join(f"\n{_render(statement)};" for statement in unapplied)
        raise CommandError(
            "The rights are applied, but this login may not run the following. Let an "
            f"administrator of PostgreSQL run it:{text}"
        )


def _read_logins(options: Iterable[list[str]]) -> Iterator[tuple[str, str, str]]:
    """Read role, login and password of each --login."""
    for role, name, file in options:
        if role not in ROLES_BY_NAME:
            raise CommandError(f"--login {role}: the role must be web or consumer.")
        try:
            password = read_text(Path(file)).strip()
            if password:
                refuse_open_secret(Path(file))
        except FileError as error:
            raise CommandError(f"--login {role} {name}: {error}.") from None
        if not password:
            raise CommandError(f"{file} is empty: it must have the password of {name}.")
        yield ROLES_BY_NAME[role], name, password


def _refuse_other_rights(role: str, name: str) -> None:
    """Refuse a login that already has another role: it would have the rights of both."""
    if roles := grants.list_other_roles(role, name):
        raise CommandError(
            f"{name} has the rights of {' and '.join(roles)}: as a login of {role} too, it would "
            "have both. Nothing is changed. Give another name, or take those rights away first."
        )


def _execute(statements: Iterable[sql.Composed]) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(_render(statement))


def _execute_if_allowed(statement: sql.Composed) -> bool:
    """Run a statement. Returns False if this login may not run it."""
    try:
        with transaction.atomic():
            _execute([statement])
    except ProgrammingError as error:
        if isinstance(error.__cause__, errors.InsufficientPrivilege):
            return False
        raise
    return True


def _render(statement: sql.Composed) -> str:
    connection.ensure_connection()
    return statement.as_string(connection.connection)
