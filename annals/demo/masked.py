"""The sensitive values of the simulated participants, and who gets to see them."""

import re
import urllib.parse
from collections.abc import Iterable, Iterator
from typing import Any

from annals.demo.client import Client
from annals.demo.produced import Produced
from history import diff

ENTITY = "participant-role"
# Where a participant of the simulator has what the demo says is masked.
PATHS = ("/phones/*/number", "/passport", "/income", "/birthDate")
TOKEN = re.compile("masked:[0-9a-f]{16}")  # as docs/api.md has it
MOST = 20  # participants that are looked at


def sensitive(expected: Produced) -> Iterator[tuple[str, dict[str, Any]]]:
    """The id and version 0 of some participants that have all the values."""
    found = (
        (identifier, versions[0]["data"])
        for (entity, identifier), versions in expected.documents.items()
        if entity == ENTITY and 0 in versions
    )
    full = (each for each in found if all(diff.find(path, each[1]) for path in PATHS))
    yield from (each for each, _ in zip(full, range(MOST), strict=False))


def in_clear(client: Client, participants: Iterable[str]) -> list[str]:
    """The id and path of each of these values for which this login gets no mask."""
    return [
        f"{identifier} {path}"
        for identifier in participants
        for entity in [client.get(_address(identifier))["entity"]]
        for path in PATHS
        if not all(TOKEN.fullmatch(str(value)) for _, value in diff.find(path, entity))
    ]


def passport(client: Client, identifier: str) -> str:
    """The page that shows a passport after a reason is given."""
    address = f"/admin/{_address(identifier)}/unmask/?path=/passport"
    return client.send(address, reason="scripts/demo --check")


def _address(identifier: str) -> str:
    return f"history/{ENTITY}/{urllib.parse.quote(identifier, safe='')}/versions/0"
