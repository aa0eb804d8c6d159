"""Reads the declaration of one kind."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from history.json_pointer import as_pointer
from history.kinds.envelope import envelope
from history.kinds.kind import Entity
from history.kinds.labels import FIELD_LENGTH, LANGUAGES, labels
from history.kinds.table import Table, twice

# It is part of the names of tables, which have at most 63 bytes, and is stored in columns.
NAME_LENGTH: Final = 40
KEY_LENGTH: Final = 40
TITLE_LENGTH: Final = 100
TOPIC_LENGTH: Final = 249
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_KEY: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]+")
# Addresses and arguments of Annals that a kind would hide.
TAKEN: Final = ("person", "fieldlabel", "quarantined", "access-journal", "at", "applications")
PLACES: Final = 'names, each with a JSON pointer or a list of them: { number = "/number" }'


def kind(values: Mapping[str, object], file: str, number: int) -> Entity:
    """The kind that one [[kind]] of the file declares. number: which, from 1. Raises KindsError."""
    called = values.get("name")
    table = Table(values, file, f'kind "{called}"' if isinstance(called, str) else f"kind {number}")
    name = _name(table)
    english, russian = _title(table)
    topics = _topics(table)
    root = table.flag("main")
    parent = table.optional("parent", 'the field that names the parent, as "productInstanceId"',
                            FIELD_LENGTH)  # fmt: skip
    if parent is not None:
        table.pointer("parent", as_pointer(parent))
    if root and parent is not None:
        raise table.error("parent", "the main kind has no parent. Remove parent, or main = true.")
    found = Entity(
        name, english, russian, topics, root, parent,
        search=_search(table),
        list_keys=table.texts("list_keys", 'a list of field names: ["sku", "id"]', ("pid", "id")),
        list_places=tuple(_list_places(table)),
        created_at=table.text("created_at", "a field of the document", FIELD_LENGTH, "createdAt"),
        closed_at=table.optional("closed_at", "a field of the document", FIELD_LENGTH),
        labels=tuple(labels(table)),
        envelope=envelope(table, parent),
    )  # fmt: skip
    table.done()
    return found


def _name(table: Table) -> str:
    name = table.text("name", "the name of the kind in addresses and tables", NAME_LENGTH)
    if not _NAME.fullmatch(name):
        raise table.error(
            "name",
            "must be small Latin letters and digits, in words with hyphens in between, and begin "
            'with a letter: "order-item". It becomes the name of a table.',
        )
    if name in TAKEN:
        raise table.error("name", "is an address of Annals itself. Use another name.")
    return name


def _title(table: Table) -> tuple[str, str]:
    """In English and in Russian."""
    valid = 'a text, or { en = "Order", ru = "Заказ" }'
    if isinstance(table.value("title") if table.given("title") else "", str):
        title = table.text("title", valid, TITLE_LENGTH)
        return title, title
    both = table.table("title", valid)
    assert both is not None  # noqa: S101 - it is given
    english, russian = (both.optional(each, "a text", TITLE_LENGTH) for each in LANGUAGES)
    both.done()
    if not english and not russian:
        raise both.error("", f"is empty: {valid}.")
    return english or russian or "", russian or english or ""


def _topics(table: Table) -> tuple[str, ...]:
    live = table.text("topic", "the Kafka topic of the kind", TOPIC_LENGTH)
    twin = table.optional("migration_topic", "a Kafka topic", TOPIC_LENGTH)
    found = {"topic": live} | ({"migration_topic": twin} if twin is not None else {})
    for key, topic in found.items():
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            raise table.error(
                key,
                f'"{topic}" is no name of a Kafka topic: these have Latin letters, digits, ".", '
                '"_" and "-".',
            )
    if live == twin:
        raise table.error("migration_topic", "must differ from topic. Without one, leave it out.")
    return tuple(found.values())


def _search(table: Table) -> tuple[tuple[str, str], ...]:
    keys = table.table("search", PLACES)
    if keys is None:
        return ()
    found: list[tuple[str, str]] = []
    for name in keys.items():
        if not _KEY.fullmatch(name) or len(name) > KEY_LENGTH or name == "id":
            raise keys.error(
                name,
                f"a search key has 1 to {KEY_LENGTH} Latin letters, digits, _ and -, begins with a "
                'letter, and is not "id", by which everything is found.',
            )
        value = keys.value(name)
        pointers = value if isinstance(value, list) else [value]
        if not pointers:
            raise keys.error(name, "has no JSON pointer.")
        found += ((name, keys.pointer(name, each)) for each in pointers)
    if (again := twice([pointer for _, pointer in found])) is not None:
        raise keys.error("", f'"{again}" is declared twice.')
    return tuple(found)


def _list_places(table: Table) -> Iterator[tuple[str, tuple[str, ...]]]:
    valid = 'places of lists, each with field names: { "/items" = ["sku"] }'
    places = table.table("list_places", valid)
    for place in places.items() if places is not None else ():
        assert places is not None  # noqa: S101
        places.pointer(place, place)
        yield place, places.texts(place, 'a list of field names: ["sku"]', ())
