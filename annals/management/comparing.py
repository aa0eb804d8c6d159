"""Compares one application here and in the old service, version by version. Shows no values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from history import diff, masking
from history.base import clock
from history.entities import Entity
from history.fallback import OldVersion
from history.timeline.compose import identity
from history.timeline.sources.statements import VersionRow
from history.timeline.versions import parse

# Versions of the last minutes may still be on their way to one of the two.
SETTLE: Final = timedelta(minutes=5)
MOST_PATHS: Final = 5

Stored = Mapping[tuple[Entity, str, int], Sequence[VersionRow]]


class Verdict(StrEnum):
    """What a comparison says of one version. The last three do not speak against the switch."""

    EQUAL = "equal"
    DIFFERENT = "different"
    MISSING_HERE = "missingHere"
    MISSING_THERE = "missingThere"
    OLDER = "older"  # only there, and older than what is kept here
    TOO_NEW = "tooNew"  # of the last minutes, and only in one of the two


FAULTS: Final = frozenset({Verdict.DIFFERENT, Verdict.MISSING_HERE})


@dataclass(frozen=True, slots=True)
class Compared:
    """One version. paths: the first places where the two differ: pointers into the snapshot, and
    names of the fields around it. clocks: they differ in updatedAt, which is no difference."""

    kind: str
    id: str
    version: int
    verdict: Verdict
    paths: tuple[str, ...] = ()
    clocks: bool = False


@dataclass(slots=True)
class Tally:
    """What was found so far. nowhere: applications of which neither of the two has a version.
    unavailable: applications that the old service did not give."""

    applications: int = 0
    nowhere: int = 0
    versions: Counter[Verdict] = field(default_factory=Counter)
    clocks: int = 0
    unavailable: int = 0

    def add(self, compared: Compared) -> None:
        self.versions[compared.verdict] += 1
        self.clocks += compared.clocks

    @property
    def faults(self) -> int:
        """Versions that speak against the switch."""
        return sum(self.versions[each] for each in FAULTS)

    @property
    def ok(self) -> bool:
        """Whether something was compared, and nothing speaks against the switch."""
        return bool(self.versions[Verdict.EQUAL]) and not self.unavailable and not self.faults


def compare(stored: Stored, theirs: Sequence[OldVersion], kept: datetime) -> Iterator[Compared]:
    """Each version of one application, in no order. kept: what is older may be gone here."""
    there = {(each.entity, each.id, each.version): each for each in theirs}
    settled = clock.now() - SETTLE
    for place in stored.keys() | there.keys():
        entity, id, number = place
        ours, old = stored.get(place, ()), there.get(place)
        if old is None:
            newest = max(row.updated_at for row in ours)
            verdict = Verdict.TOO_NEW if newest > settled else Verdict.MISSING_THERE
            yield Compared(entity.name, id, number, verdict)
        elif not ours:
            yield Compared(entity.name, id, number, _missing(old, kept, settled))
        else:
            # Where we have two versions of one number, the one that fits best.
            yield min((_both(row, old) for row in ours), key=_distance)


def _missing(old: OldVersion, kept: datetime, settled: datetime) -> Verdict:
    if old.updated_at < kept:
        return Verdict.OLDER
    return Verdict.TOO_NEW if old.updated_at > settled else Verdict.MISSING_HERE


def _both(row: VersionRow, old: OldVersion) -> Compared:
    around = {
        "type": (row.type, old.type),
        "clientId": (row.client_id, old.client_id),
        "author": (row.author, old.author),
        "productInstanceId": (row.product_instance_id, old.product_instance_id),
    }
    paths = [name for name, (ours, theirs) in around.items() if ours != theirs]
    entity = old.entity
    # The paths of lists name the value that tells their items apart: a marked one as its token.
    mask = masking.stored_mask(entity)
    there, here = ((mask(old.id, data) if mask else data) for data in (old.data, row.data))
    changes = diff.changes(parse(there), parse(here), identity(entity))
    paths += [change.key_path or "(the whole document)" for change in changes]
    verdict = Verdict.DIFFERENT if paths else Verdict.EQUAL
    clocks = row.updated_at != old.updated_at
    return Compared(entity.name, old.id, old.version, verdict, tuple(paths[:MOST_PATHS]), clocks)


def _distance(compared: Compared) -> tuple[int, bool]:
    return len(compared.paths), compared.clocks
