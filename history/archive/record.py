"""What operators decided about an archived day, with the reason: a list in a file of its folder."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from history.archive.store import Store

Entry = TypeVar("Entry", bound=msgspec.Struct)


def read(store: Store, name: str, kind: type[Entry]) -> list[Entry]:
    """The decisions in a file, oldest first."""
    text = store.read(name)
    return msgspec.json.decode(text, type=list[kind]) if text else []  # type: ignore[valid-type]


def add(store: Store, name: str, kind: type[Entry], entry: Entry) -> None:
    entries = [*read(store, name, kind), entry]
    store.put(name, msgspec.json.format(msgspec.json.encode(entries), indent=2))
