"""Reads the values of one table of a TOML file. Each mistake becomes a sentence that names the
file, the place and the key, and says what is valid."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from history.failure.complaint import Complaint
from history.json_pointer import segments
from history.plain_text import one_line

_INDEX: Final = re.compile(r"~(?![01])")


class KindsError(Complaint, ValueError):
    """The declaration of the kinds is wrong. The message is a sentence for people, on one line
    whatever the names in the file are."""

    def __init__(self, text: str) -> None:
        super().__init__(one_line(text))


class Table:
    """One table of the file. where: what it is, for sentences, as `kind "order"`."""

    def __init__(self, values: Mapping[str, object], file: str, where: str = "") -> None:
        self._values = values
        self._known: list[str] = []
        self.file = file
        self.where = where

    def error(self, key: str, what: str) -> KindsError:
        """The sentence about a key; an empty key: about the whole table."""
        parts = [self.file, self.where, key]
        return KindsError(f"{': '.join(part for part in parts if part)}: {what}")

    def given(self, key: str) -> bool:
        self._note(key)
        return key in self._values

    def done(self) -> None:
        """To be called last: refuses the keys that nobody asked for."""
        unknown = [key for key in self._values if key not in self._known]
        if unknown:
            known = ", ".join(self._known)
            raise self.error(unknown[0], f"there is no such key here. Valid keys: {known}.")

    def text(self, key: str, valid: str, most: int, default: str | None = None) -> str:
        """A text of 1 to `most` characters. valid: what it must be, for the sentence."""
        value = self._take(key, valid, default)
        if not isinstance(value, str):
            raise self.error(key, f"must be {valid}, in quotes.")
        if not value.strip():
            raise self.error(key, f"must not be empty: {valid}.")
        if len(value) > most:
            raise self.error(key, f"must have at most {most} characters, not {len(value)}.")
        if "\0" in value:
            raise self.error(key, "must not have a NUL character.")
        return value

    def optional(self, key: str, valid: str, most: int) -> str | None:
        return self.text(key, valid, most) if self.given(key) else None

    def one_of(self, key: str, valid: Sequence[str], default: str | None = None) -> str:
        words = ", ".join(f'"{each}"' for each in valid)
        value = self._take(key, f"one of {words}", default)
        if value not in valid:
            raise self.error(key, f"must be one of {words}.")
        return str(value)

    def flag(self, key: str) -> bool:
        value = self._take(key, "true or false", default=False)
        if not isinstance(value, bool):
            raise self.error(key, "must be true or false, without quotes.")
        return value

    def texts(self, key: str, valid: str, default: Sequence[str]) -> tuple[str, ...]:
        """A list of texts that are not empty."""
        value = self._take(key, valid, list(default))
        if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
            raise self.error(key, f"must be {valid}.")
        return tuple(value)

    def table(self, key: str, valid: str) -> Table | None:
        """None if it is not there."""
        if not self.given(key):
            return None
        value = self._values[key]
        if not isinstance(value, dict):
            raise self.error(key, f"must be a table: {valid}.")
        return Table(value, self.file, f"{self.where}: {key}" if self.where else key)

    def tables(self, key: str) -> list[Mapping[str, object]]:
        """The tables [[key]], in the order of the file."""
        value = self._take(key, f"tables [[{key}]]", [])
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            raise self.error(key, f"must be tables: write [[{key}]], with two brackets.")
        return value

    def items(self) -> list[str]:
        """All keys, of a table that has names of its own."""
        self._known += self._values
        return list(self._values)

    def value(self, key: str) -> object:
        return self._values[key]

    def pointer(self, key: str, value: object, *, whole: bool = False) -> str:
        """The value as a JSON pointer into a document. whole: or the empty one, to all of it."""
        if whole and value == "":
            return ""
        if not isinstance(value, str) or not value.startswith("/"):
            raise self.error(key, 'must be a JSON pointer, which begins with a slash: "/number".')
        if _INDEX.search(value):
            raise self.error(key, f'"{value}" is no JSON pointer: write ~ as ~0 and / as ~1.')
        if "" in segments(value):
            raise self.error(key, f'"{value}" has an empty name: a JSON pointer is "/a/b".')
        return value

    def _take(self, key: str, valid: str, default: object) -> object:
        self._note(key)
        value = self._values.get(key, default)
        if value is None:
            raise self.error(key, f"is missing: {valid}.")
        return value

    def _note(self, key: str) -> None:
        if key not in self._known:
            self._known.append(key)


def twice(names: Collection[str]) -> str | None:
    """The first name that is there a second time."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
