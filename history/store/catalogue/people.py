"""The people and services behind logins and client ids."""

import csv
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import StringIO
from typing import Final

from django.db import OperationalError, transaction

from history.common.explained_errors import explain_text_error
from history.documents.record import AUTHOR_LENGTH
from history.models import Person, PersonKind
from history.store.database import prepared
from history.store.versions import LoginKind

log = logging.getLogger(__name__)

COLUMNS = ("login", "full_name", "kind")
NAME_LENGTH = 200


_SELECT_BY_LOGIN: Final = (
    "SELECT login, full_name, kind FROM history_person WHERE login = ANY(%(logins)s)"
)


@dataclass(frozen=True, slots=True)
class NamedLogin:
    """A login with its full name. The name of an unknown login is the login itself."""

    login: str
    name: str
    kind: LoginKind


def make_unnamed_login(login: str) -> NamedLogin:
    """Make a NamedLogin for a login without a known name."""
    return NamedLogin(login, login, "unknown")


def fetch_named_logins(logins: Iterable[str | None]) -> dict[str, NamedLogin]:
    """Return the full name of each login or client id, by login or client id.

    If a full name is not known, it is the login or client id. Runs at most one query.

    Args:
        logins: Logins and client ids. None is ignored.
    """
    logins_to_find = {login for login in logins if login is not None}
    named_logins = {login: make_unnamed_login(login) for login in logins_to_find}
    if logins_to_find:
        rows = prepared.fetch_rows(_SELECT_BY_LOGIN, {"logins": list(logins_to_find)})
        named_logins.update((login, NamedLogin(login, name, kind)) for login, name, kind in rows)
    return named_logins


_SELECT_BY_NAME: Final = """
SELECT login, full_name, kind FROM history_person
WHERE login = %(text)s OR translate(lower(full_name), 'ё', 'е') LIKE ALL(%(parts)s)
ORDER BY login <> %(text)s, full_name, login
LIMIT 100"""
_LIKE_SIGN: Final = re.compile(r"[\\%_]")
_ESCAPED: Final = r"\\\g<0>"


def find_by_name(text: str) -> list[NamedLogin]:
    """Return at most 100 people and services by login or by parts of their full names.

    If the text is a login, only that login is returned. Otherwise a full name matches if it
    contains each word of the text, in any order. The text must not be empty. Runs one query.
    """
    words = _split_words(text)
    patterns = [f"%{_LIKE_SIGN.sub(_ESCAPED, word)}%" for word in sorted(words)]
    rows = prepared.fetch_rows(_SELECT_BY_NAME, {"text": text, "parts": patterns})
    if rows and rows[0][0] == text:
        rows = rows[:1]
    else:
        rows = [row for row in rows if words <= _split_words(row[1])]
    return [NamedLogin(login, name, kind) for login, name, kind in rows]


def _split_words(name: str) -> set[str]:
    return set(name.casefold().replace("ё", "е").split())


class PeopleFileError(ValueError):
    """Raised if a file of people cannot be imported. The message has a line for each mistake."""


@dataclass(frozen=True, slots=True)
class PeopleImport:
    """The result of an import: how many logins it added, changed and left unchanged."""

    added: int
    changed: int
    unchanged: int


def load_people(text: bytes) -> PeopleImport:
    """Add and change people from a CSV file. If the file has a mistake, nothing changes.

    People who are not in the file stay.

    Args:
        text: CSV in UTF-8 with the header line `login,full_name,kind`.

    Raises:
        PeopleFileError: The file has mistakes. The message names each wrong line.
    """
    people = _parse_file(_decode_file(text))
    with transaction.atomic():
        known_people = Person.objects.select_for_update().in_bulk(people)
        added = [person for login, person in people.items() if login not in known_people]
        changed = [
            person
            for login, person in people.items()
            if login in known_people
            and (known_people[login].full_name, known_people[login].kind)
            != (person.full_name, person.kind)
        ]
        Person.objects.bulk_create(added, batch_size=1000)
        Person.objects.bulk_update(changed, ["full_name", "kind"], batch_size=1000)
        Person.objects.filter(login__in=people).exclude(written_by="").update(written_by="")
    return PeopleImport(len(added), len(changed), len(people) - len(added) - len(changed))


def _decode_file(text: bytes) -> str:
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PeopleFileError(f"the file {explain_text_error(error)}") from None


def _parse_file(text: str) -> dict[str, Person]:
    reader = csv.DictReader(StringIO(text, newline=""))
    header = tuple(name.strip() for name in reader.fieldnames or ())
    if sorted(header) != sorted(COLUMNS):
        header_text = ",".join(header) or "empty"
        raise PeopleFileError(
            f"line 1: the header must be {','.join(COLUMNS)}; it is {header_text}"
        )
    reader.fieldnames = list(header)
    people: dict[str, Person] = {}
    lines: dict[str, int] = {}
    problem_lines: list[str] = []
    for row in reader:
        line = reader.line_num
        problems = list(_generate_row_problems(row))
        login = (row["login"] or "").strip()
        if login in lines:
            problems.append(f"login {login} is already in line {lines[login]}")
        problem_lines.extend(f"line {line}: {problem}" for problem in problems)
        lines.setdefault(login, line)
        if not problems:
            kind = (row["kind"] or "").strip()
            people[login] = Person(login=login, full_name=row["full_name"].strip(), kind=kind)
    if problem_lines:
        raise PeopleFileError("\n".join(problem_lines))
    return people


def _generate_row_problems(row: dict[str, str | None]) -> Iterator[str]:
    # DictReader adds None as a key or a value if the number of values is wrong.
    if None in row or None in row.values():
        yield f"must have {len(COLUMNS)} values"
        return
    login, name, kind = ((row[column] or "").strip() for column in COLUMNS)
    if not login:
        yield "login is empty"
    elif len(login) > AUTHOR_LENGTH:
        yield f"login is longer than {AUTHOR_LENGTH} characters"
    if not name:
        yield "full_name is empty"
    elif len(name) > NAME_LENGTH:
        yield f"full_name is longer than {NAME_LENGTH} characters"
    if "\0" in login + name:
        yield "has a NUL character"
    if kind not in PersonKind.values:
        yield f"kind is {kind or 'empty'}; it must be {' or '.join(PersonKind.values)}"


def remember_login(login: str, full_name: str, identity: str) -> None:
    """Store the full name of a person who logged in.

    A name from an import or a screen, or one that was stored for another identity, is not replaced.
    A name that is too long for the table is not stored.

    Args:
        identity: Identifies the person at the identity provider, in at most 40 characters.
    """
    if len(login) > AUTHOR_LENGTH or len(full_name) > NAME_LENGTH:
        return
    person = Person.objects.filter(login=login).first()
    if person is not None and (person.full_name == full_name or person.written_by != identity):
        return
    names = {"full_name": full_name, "written_by": identity}
    try:
        with transaction.atomic():
            _, created = Person.objects.get_or_create(login=login, defaults=names)
            if not created:
                Person.objects.filter(login=login, written_by=identity).update(full_name=full_name)
    except OperationalError:
        # In a cluster each node has a copy of the table. People must be able to log in while a node
        # does not answer.
        log.warning(
            "the full name of the login %r was not stored: a node of the database does not answer",
            login,
        )
