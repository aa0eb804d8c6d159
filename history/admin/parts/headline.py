"""The headline and the status of a document, from the fields that usually have them."""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache

from history import masking, people
from history.documents.exactjson import Json
from history.entities import ENTITIES
from history.labels import Catalogue, Label
from history.record import AUTHOR_LENGTH
from history.timeline import Reader

_MONEY = re.compile(
    r"(amount|sum|price|cost|income|expense|payment|debt|balance|fee|premium|salary)s?$",
    re.IGNORECASE,
)


MOST_LETTERS = 20_000  # of one text
MOST_NAMES = 100  # of people, each a query


@dataclass(slots=True)
class Room:
    """How many more values a page draws inside lists and objects, each of which takes 0.3 ms, and
    how many letters of long texts. names: full names that were looked up, by login."""

    left: int = 4_000
    letters: int = 200_000
    names: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fields:
    """Looks fields up by RFC 6901 pointer or key path. language: ru or en. room: of the page that
    shows them. unmask: the address that shows the masked value at a pointer, for who may see it."""

    catalogue: Catalogue
    entity: str
    language: str
    room: Room = field(default_factory=Room)
    unmask: Callable[[str], str] | None = None

    def take(self, wanted: int) -> int:
        """How many of these values there is room for; they are drawn now."""
        taken = min(wanted, self.room.left)
        self.room.left -= taken
        return taken

    def letters(self, wanted: int) -> int:
        """How many letters of a long text there is room for; they are drawn now."""
        taken = min(wanted, MOST_LETTERS, self.room.letters)
        self.room.letters -= taken
        return taken

    def label(self, path: str) -> str:
        """The field's name, empty where the catalogue has none."""
        found = self._find(path)
        return found.text(self.language) if found else ""

    def kind(self, path: str) -> str:
        """money, percent, date, enum, person, text or technical; empty where not known."""
        found = self._find(path)
        if found:
            return found.kind
        return "money" if _MONEY.search(path.rpartition("/")[2]) else ""

    def word(self, path: str, value: str) -> str:
        """The name of a value of an enumeration; empty where there is none."""
        found = self._find(path)
        words = found.words.get(value, {}) if found else {}
        return words.get(self.language) or words.get("ru") or words.get("en") or ""

    def person(self, login: str) -> str:
        """The full name; the login where nobody is known to have it."""
        names = self.room.names
        if login not in names and len(names) < MOST_NAMES and len(login) <= AUTHOR_LENGTH:
            names[login] = people.authors([login])[login].name
        return names.get(login, login)

    def _find(self, path: str) -> Label | None:
        return self.catalogue.find(self.entity, path)


KEYS = ("fullName", "name", "title", "brand", "type")
STATUS_KEYS = ("stage", "status", "state")
NUMBER, MODEL, ROLE = "number", "model", "role"
CLIENT = "clientId"  # the key of the client's number among the kinds that come with Annals
MAX_LENGTH = 120


@cache
def _title_fields() -> tuple[str, ...]:
    places = [pointer for kind in ENTITIES for key, pointer in kind.search if key == CLIENT]
    numbers = [place[1:] for place in places if place.count("/") == 1]
    return tuple(dict.fromkeys((*KEYS, *STATUS_KEYS, NUMBER, MODEL, ROLE, *numbers)))


def for_titles(reader: Reader) -> Reader:
    """Return the same reader, for what only needs the title, the status, the role and the client's
    number of documents. Large documents stay in the database."""
    return reader.with_fields(_title_fields())


def headline(data: object) -> str:
    """The first of KEYS that has a text, with the number or model where there is one; empty where
    none has. A masked text does not count."""
    if not isinstance(data, dict):
        return ""
    name = next((text for key in KEYS if (text := _words(data.get(key)))), "")
    extra = data.get(NUMBER) or (data.get(MODEL) if "brand" in data else None)
    return " ".join(part for part in (name, _words(extra)) if part)[:MAX_LENGTH]


def shared(named: Iterable[tuple[str, str, str]]) -> set[tuple[str, str]]:
    """The names that several documents have, each with its kind. named: kind, name and id."""
    counts = Counter((kind, name) for kind, name, _id in set(named))
    return {each for each, count in counts.items() if count > 1}


def status(data: object, fields: Fields) -> str:
    """The first of STATUS_KEYS that has a text, as the catalogue names it; empty where none has."""
    if isinstance(data, dict):
        for key in STATUS_KEYS:
            value = data.get(key)
            if isinstance(value, str) and value and not masking.is_token(value):
                return fields.word(f"/{key}", value) or value
    return ""


def _words(value: Json) -> str:
    if isinstance(value, dict):
        value = next((text for text in value.values() if isinstance(text, str) and text), "")
    return value if isinstance(value, str) and not masking.is_token(value) else ""
