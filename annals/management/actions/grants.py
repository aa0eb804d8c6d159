"""What `annals grants` does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import ProgrammingError, connection, transaction
from psycopg import errors, sql

from annals.access import grants, logins
from annals.access.grants import CONSUMER, WEB, statements
from history import distribution
from history.failure.complaints import FileError, read_text

ROLES = {"web": WEB, "consumer": CONSUMER}
# The partitioned tables to which a role may add rows; none while there is no such role.
_WRITABLE = """
SELECT c.relname FROM pg_class c JOIN pg_roles r ON r.rolname = %s
WHERE c.relkind = 'p' AND c.relname LIKE '%%\\_aud' AND pg_table_is_visible(c.oid)
    AND has_table_privilege(r.oid, c.oid, 'INSERT')
"""


def run(command: BaseCommand, **options: Any) -> None:
    """Print the SQL or run it. options: as the command declares them. Raises CommandError."""
    if not options["apply"]:
        if options["login"]:
            raise CommandError("--login needs --apply: a password is not printed.")
        for statement in (*statements(), *grants.closing(), *logins.limits()):
            command.stdout.write(f"{_text(statement)};")
        return
    asked = list(_asked(options["login"]))
    before = _writable()
    with transaction.atomic():
        # Who logs in waits for auth_user meanwhile.
        _run([sql.SQL("SET LOCAL lock_timeout = '10s'").format()])
        if distribution.active(connection.connection):
            # Rights and the function are given to all nodes: over one session of each, Citus asks.
            _run([sql.SQL("SET LOCAL citus.multi_shard_modify_mode TO 'sequential'").format()])
        _run(statements())
        for role, name, password in asked:
            _refuse_other_rights(role, name)
            _run(logins.make(role, name, password))
    left = [statement for statement in list(logins.limits()) if not _allowed(statement)]
    for statement in grants.closing():
        _allowed(statement)
    # PostgreSQL only warns of rights that it did not take away.
    left += grants.closing()
    command.stdout.write(f"The roles {WEB} and {CONSUMER} have their rights.")
    if taken := sorted(before - _writable()):
        command.stdout.write(
            f"The consumer may not write {', '.join(taken)} any more: this command knows no kind "
            "of these tables. If it was not meant, set ANNALS_ENTITIES_FILE as the consumer has "
            "it, and run `annals grants --apply` again."
        )
    if left:
        text = "".join(f"\n{_text(statement)};" for statement in left)
        raise CommandError(
            "The rights are applied, but this login may not run the following. Let an "
            f"administrator of PostgreSQL run it:{text}"
        )


def _writable() -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute(_WRITABLE, [CONSUMER])
        return {name for (name,) in cursor.fetchall()}


def _asked(given: Iterable[list[str]]) -> Iterator[tuple[str, str, str]]:
    """Role, login and password of each --login."""
    for role, name, file in given:
        if role not in ROLES:
            raise CommandError(f"--login {role}: the role must be web or consumer.")
        try:
            password = read_text(Path(file)).strip()
        except FileError as error:
            raise CommandError(f"--login {role} {name}: {error}.") from None
        if not password:
            raise CommandError(f"{file} is empty: it must have the password of {name}.")
        yield ROLES[role], name, password


def _refuse_other_rights(role: str, name: str) -> None:
    """A login with two roles would have the rights of both."""
    others = logins.other_roles(role, name)
    if logins.OWNER in others:
        raise CommandError(
            f"{name} has the rights of the owner of the tables, or of a superuser: it cannot be a "
            f"login of {role}. Nothing is changed. Give another name."
        )
    if others:
        raise CommandError(
            f"{name} is a login of {others[0]}: as one of {role} too, it would have the rights of "
            f"both. Nothing is changed. Give another name, or run REVOKE {others[0]} FROM {name}; "
            "first."
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
