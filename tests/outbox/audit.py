"""Compares what is recorded with what the database has: each document, and no other one."""

import json
from typing import Any

from outbox import message
from outbox.block import kind_of
from outbox.message import Version
from tests.outbox import stored
from tests.outbox.ways.models import KINDS

Documents = dict[str, Any]


def recorded() -> Documents:
    """The newest snapshot of each document that is not deleted."""
    newest: dict[str, Version] = {}
    for each in stored.versions():
        known = newest.get(each.document)
        if known is None or known.version < each.version:
            newest[each.document] = each
    return {name: json.loads(each.data) for name, each in newest.items() if each.type != 2}


def actual() -> Documents:
    """The snapshot of each row, now."""
    changes = [
        kind_of(model).change(row)  # type: ignore[union-attr]
        for model in KINDS
        for row in model._base_manager.all()
    ]
    found = {each.key: json.loads(message.text(each.data, each.key)) for each in changes}
    assert len(found) == len(changes)
    return found


def check() -> None:
    """Raises AssertionError."""
    there, told = actual(), recorded()
    wrong = {
        name: {"recorded": told.get(name), "actual": there.get(name)}
        for name in there.keys() | told.keys()
        if told.get(name) != there.get(name)
    }
    assert not wrong, wrong


def numbers() -> dict[str, list[int]]:
    """The types of the versions of each document, in order; numbers without gaps."""
    found: dict[str, list[Version]] = {}
    for each in stored.versions():
        found.setdefault(each.document, []).append(each)
    for versions in found.values():
        versions.sort(key=lambda each: each.version)
        assert [each.version for each in versions] == list(range(1, len(versions) + 1))
    return {name: [each.type for each in versions] for name, versions in found.items()}
