"""Reads the labels of the fields of one kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from history.kinds.kind import Label
from history.kinds.table import KindsError, Table

PATH_LENGTH: Final = 300
FIELD_LENGTH: Final = 200
KINDS: Final = ("text", "money", "percent", "date", "enum", "technical")
LANGUAGES: Final = ("en", "ru")


def labels(table: Table) -> Iterator[Label]:
    """The labels of a kind. Raises KindsError."""
    paths: set[str] = set()
    for number, values in enumerate(table.tables("label"), 1):
        path = values.get("path")
        where = f'label "{path}"' if isinstance(path, str) else f"label {number}"
        label = _label(Table(values, table.file, f"{table.where}: {where}"))
        if label.path in paths:
            raise KindsError(f"{table.file}: {table.where}: {where}: is declared twice.")
        paths.add(label.path)
        yield label


def _label(table: Table) -> Label:
    path = table.text("path", 'the place of the field, as "/total"', PATH_LENGTH)
    table.pointer("path", path)
    english, russian = (table.optional(each, "a text", FIELD_LENGTH) for each in LANGUAGES)
    if not english and not russian:
        raise table.error("", 'has no text: write en = "...", ru = "...", or both.')
    kind = table.one_of("kind", KINDS, "text")
    sensitive = table.flag("sensitive")
    for problem in problems_of_mark(path) if sensitive else ():
        raise table.error("path", f"{problem}.")
    words = tuple(_words(table))
    if words and kind != "enum":
        raise table.error("words", 'are for kind = "enum" only.')
    table.done()
    return Label(
        path, english or "", russian or english or "", kind, words, sensitive,
    )  # fmt: skip


def _words(table: Table) -> Iterator[tuple[str, tuple[tuple[str, str], ...]]]:
    valid = 'values, each with its names: { NEW = { en = "New", ru = "Новый" } }'
    words = table.table("words", valid)
    for value in words.items() if words is not None else ():
        assert words is not None  # noqa: S101
        names = words.table(value, 'its names, as { en = "New", ru = "Новый" }')
        assert names is not None  # noqa: S101
        found = tuple((each, names.text(each, "a text", FIELD_LENGTH))
                      for each in LANGUAGES if names.given(each))  # fmt: skip
        for each in LANGUAGES:
            names.optional(each, "a text", FIELD_LENGTH)
        names.done()
        if not found:
            raise names.error("", "has no name.")
        yield value, found


def problems_of_mark(path: str) -> Iterator[str]:
    """What is wrong with the path of a sensitive field, in sentences: who marks a field must not
    believe that it is masked when it is not."""
    segments = path.split("/")[1:]
    if "" in segments:
        yield "the path of a sensitive field has no empty segment and no slash at its end"
    for segment in segments:
        if segment.startswith("["):
            yield f"{segment} selects nothing in the path of a sensitive field: write *"
        elif segment.isdigit():
            yield f"{segment} is one place of a list, and items move: write *"
