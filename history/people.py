"""The people and services behind logins and client ids."""

import csv
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import StringIO
from typing import Final, Literal

from django.db import OperationalError, transaction

from history.database import prepared
from history.failure.complaints import of_text
from history.models import Person
from history.record import AUTHOR_LENGTH

log = logging.getLogger(__name__)

COLUMNS = ("login", "full_name", "kind")
NAME_LENGTH = 200


_KNOWN: Final = "SELECT login, full_name, kind FROM history_person WHERE login = ANY(%(logins)s)"


@dataclass(frozen=True, slots=True)
class Author:
    """A login with its full name. An unknown login is its own name."""

    login: str
    name: str
    kind: Literal["person", "service", "unknown"]


def unnamed(login: str) -> Author:
    """A login that nobody is known to have."""
    return Author(login, login, "unknown")


def authors(logins: Iterable[str | None]) -> dict[str, Author]:
    """Who each of these logins and client ids is. At most one query. None is ignored."""
    wanted = {login for login in logins if login is not None}
    found = {login: unnamed(login) for login in wanted}
    if wanted:
        known = prepared.fetch(_KNOWN, {"logins": list(wanted)})
        found.update((login, Author(login, name, kind)) for login, name, kind in known)
    return found


_CALLED: Final = """
SELECT login, full_name, kind FROM history_person
WHERE login = %(text)s OR translate(lower(full_name), 'ё', 'е') LIKE ALL(%(parts)s)
ORDER BY login <> %(text)s, full_name, login
LIMIT 100"""
_LIKE_SIGN: Final = re.compile(r"[\\%_]")
_ESCAPED: Final = r"\\\g<0>"


def called(text: str) -> list[Author]:
    """The people and services that may be meant: the one with this login, alone; else those whose
    full name has each of these words, in any order. text: not empty. 100 at most; one query."""
    words = _words(text)
    parts = [f"%{_LIKE_SIGN.sub(_ESCAPED, word)}%" for word in sorted(words)]
    found = prepared.fetch(_CALLED, {"text": text, "parts": parts})
    if found and found[0][0] == text:
        found = found[:1]
    else:
        found = [row for row in found if words <= _words(row[1])]
    return [Author(login, name, kind) for login, name, kind in found]


def _words(name: str) -> set[str]:
    return set(name.casefold().replace("ё", "е").split())


class PeopleFileError(ValueError):
    """A file of people that cannot be imported; the message has a line for everything wrong."""


@dataclass(frozen=True, slots=True)
class Imported:
    """How many logins an import added, changed and left unchanged."""

    added: int
    changed: int
    unchanged: int


def load(text: bytes) -> Imported:
    """Add and change people from CSV in UTF-8 with a header line `login,full_name,kind`; nobody is
    removed. All or nothing: PeopleFileError names every line that is wrong."""
    given = _parse(_decode(text))
    with transaction.atomic():
        known = Person.objects.select_for_update().in_bulk(given)
        added = [person for login, person in given.items() if login not in known]
        changed = [
            person
            for login, person in given.items()
            if login in known
            and (known[login].full_name, known[login].kind) != (person.full_name, person.kind)
        ]
        Person.objects.bulk_create(added, batch_size=1000)
        Person.objects.bulk_update(changed, ["full_name", "kind"], batch_size=1000)
        Person.objects.filter(login__in=given).exclude(written_by="").update(written_by="")
    return Imported(len(added), len(changed), len(given) - len(added) - len(changed))


def _decode(text: bytes) -> str:
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PeopleFileError(f"it {of_text(error)}") from None


def _parse(text: str) -> dict[str, Person]:
    reader = csv.DictReader(StringIO(text, newline=""))
    header = tuple(name.strip() for name in reader.fieldnames or ())
    if sorted(header) != sorted(COLUMNS):
        found = ",".join(header) or "nothing"
        raise PeopleFileError(f"line 1: the header must be {','.join(COLUMNS)}; it is {found}")
    reader.fieldnames = list(header)
    people: dict[str, Person] = {}
    lines: dict[str, int] = {}
    wrong: list[str] = []
    for row in reader:
        line = reader.line_num
        problems = list(_problems(row))
        login = (row["login"] or "").strip()
        if login in lines:
            problems.append(f"login {login} is already in line {lines[login]}")
        wrong.extend(f"line {line}: {problem}" for problem in problems)
        lines.setdefault(login, line)
        if not problems:
            kind = (row["kind"] or "").strip()
            people[login] = Person(login=login, full_name=row["full_name"].strip(), kind=kind)
    if wrong:
        raise PeopleFileError("\n".join(wrong))
    return people


def _problems(row: dict[str, str | None]) -> Iterator[str]:
    if None in row or None in row.values():  # DictReader's marks for a wrong number of values
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
    if kind not in Person.Kind.values:
        yield f"kind is {kind or 'empty'}; it must be {' or '.join(Person.Kind.values)}"


def remember(login: str, full_name: str, identity: str) -> None:
    """Note the full name of a person who logged in, where the table has none, or one that a login
    of the same identity (40 characters at most) wrote: whom the bank entered, a login does not
    rename. What is too long for the table is left out."""
    if len(login) > AUTHOR_LENGTH or len(full_name) > NAME_LENGTH:
        return
    known = Person.objects.filter(login=login).first()
    if known is not None and (known.full_name == full_name or known.written_by != identity):
        return
    names = {"full_name": full_name, "written_by": identity}
    try:
        with transaction.atomic():
            _, created = Person.objects.get_or_create(login=login, defaults=names)
            if not created:
                Person.objects.filter(login=login, written_by=identity).update(full_name=full_name)
    except OperationalError:
        # In a cluster each node has a copy, and one that is away must not keep people out.
        log.warning("the name of %r is not noted: a node of the database does not answer", login)
