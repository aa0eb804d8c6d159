"""Finds the headline and the status of a document in fields such as `fullName` and `status`."""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from history.documents.record import AUTHOR_LENGTH
from history.kinds.entities import ENTITIES
from history.policy import masking
from history.store.catalogue import people
from history.store.catalogue.labels import FieldText, LabelCatalogue
from history.timeline import HistoryReader
from history.timeline.titles import HEADLINE_KEYS, MODEL, NUMBER

_MONEY = re.compile(
    r"(amount|sum|price|cost|income|expense|payment|debt|balance|fee|premium|salary)s?$",
    re.IGNORECASE,
)


MOST_LETTERS = 20_000  # how many letters of one text a page draws
MOST_NAMES = 100  # how many people a page names; each takes a query


@dataclass(slots=True)
class RenderBudget:
    """How much a page can still show. The budget limits how long the page takes to render.

    Attributes:
        values_left: How many values inside lists and objects the page can still show. Rendering a
            value takes 0.3 ms.
        letters: How many letters of long texts the page can still show.
        names: The full names looked up so far, by login.
    """

    values_left: int = 4_000
    letters: int = 200_000
    names: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FieldTexts:
    """The names of a kind's fields, looked up by RFC 6901 pointer or key path.

    Attributes:
        catalogue: The labels of all kinds.
        entity: The name of the kind.
        language: "ru" or "en".
        budget: How much the page can still show.
        unmask: Returns the address of the page that unmasks the value at a pointer. None if the
            login may not unmask.
    """

    catalogue: LabelCatalogue
    entity: str
    language: str
    budget: RenderBudget = field(default_factory=RenderBudget)
    unmask: Callable[[str], str] | None = None

    def reserve_values(self, count: int) -> int:
        """Return how many of `count` values the page can show; subtract them from the budget."""
        reserved = min(count, self.budget.values_left)
        self.budget.values_left -= reserved
        return reserved

    def reserve_letters(self, count: int) -> int:
        """Return how many of `count` letters the page can show; subtract them from the budget."""
        reserved = min(count, MOST_LETTERS, self.budget.letters)
        self.budget.letters -= reserved
        return reserved

    def get_label(self, path: str) -> str:
        """Return the name of a field, or "" if the catalogue does not have it."""
        label = self._find(path)
        return label.get_text(self.language) if label else ""

    def get_kind(self, path: str) -> str:
        """Return the LabelKind of a field, or "" if it is not known.

        A field without a label is "money" if its name looks like an amount.
        """
        label = self._find(path)
        if label:
            return label.kind
        return "money" if _MONEY.search(path.rpartition("/")[2]) else ""

    def get_word(self, path: str, value: str) -> str:
        """Return the label of an enumeration's value, or "" if it does not have one."""
        label = self._find(path)
        words = label.words.get(value, {}) if label else {}
        return words.get(self.language) or words.get("ru") or words.get("en") or ""

    def get_person(self, login: str) -> str:
        """Return the full name of a login, or the login itself if its name is not known."""
        names = self.budget.names
        if login not in names and len(names) < MOST_NAMES and len(login) <= AUTHOR_LENGTH:
            names[login] = people.fetch_named_logins([login])[login].name
        return names.get(login, login)

    def _find(self, path: str) -> FieldText | None:
        return self.catalogue.find(self.entity, path)


STATUS_KEYS = ("stage", "status", "state")
ROLE = "role"
CLIENT = "clientId"  # the key of the client's number among the kinds that come with Annals


@cache
def _list_title_fields() -> tuple[str, ...]:
    pointers = [pointer for kind in ENTITIES for key, pointer in kind.search if key == CLIENT]
    numbers = [pointer[1:] for pointer in pointers if pointer.count("/") == 1]
    return tuple(dict.fromkeys((*HEADLINE_KEYS, *STATUS_KEYS, NUMBER, MODEL, ROLE, *numbers)))


def limit_to_title_fields(reader: HistoryReader) -> HistoryReader:
    """Return a reader that loads only the fields with title, status, role and client number.

    Large snapshots are then not loaded whole.
    """
    return reader.limit_to_fields(_list_title_fields())


class NamedDocument(NamedTuple):
    """A document and the name under which a page shows it."""

    kind: str
    name: str
    id: str


def find_shared_names(documents: Iterable[NamedDocument]) -> set[tuple[str, str]]:
    """Return the pairs of a kind and a name that several of these documents have."""
    counts = Counter((document.kind, document.name) for document in set(documents))
    return {kind_and_name for kind_and_name, count in counts.items() if count > 1}


def get_status(data: object, fields: FieldTexts) -> str:
    """Return the status of a document, or "" if it has none.

    The status is in the words of the label catalogue, or as it is stored if there are none.

    The status is the first text under one of STATUS_KEYS.
    """
    if isinstance(data, dict):
        for key in STATUS_KEYS:
            value = data.get(key)
            if isinstance(value, str) and value and not masking.is_token(value):
                return fields.get_word(f"/{key}", value) or value
    return ""
