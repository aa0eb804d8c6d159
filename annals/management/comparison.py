"""Compares each version of an application in Annals with the same version in the old service.

The results name the fields that differ. They do not contain values of these fields.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from django.db.models import TextChoices
from psycopg.types.numeric import Float8, Int4

from history import diff, timeline
from history.common import clock
from history.kinds.entities import get_root
from history.policy import masking
from history.store.database import prepared
from history.store.versions import (
    SourceRow,
    VersionNumberRef,
    VersionRef,
    VersionRow,
    parse_snapshot,
)
from history.timeline import HistoryReader
from history.timeline.compose import get_identity

# Versions younger than this may not have arrived in both systems yet.
SETTLE_PERIOD: Final = timedelta(minutes=5)
MAX_PATHS: Final = 5

StoredVersions = Mapping[VersionNumberRef, Sequence[VersionRow]]


# SYSTEM samples whole pages of the table, which is cheap. REPEATABLE gives the same rows again.
_SELECT_SAMPLE: Final = """
    SELECT DISTINCT id FROM {table} TABLESAMPLE SYSTEM (%(percent)s) REPEATABLE (%(seed)s)
    ORDER BY id
"""
_FIRST_PERCENT: Final = 0.05


class ComparisonVerdict(TextChoices):
    """The result for one version. DIFFERENT and MISSING_HERE are reasons not to migrate yet."""

    EQUAL = "equal", "equal"
    DIFFERENT = "different", "different"
    MISSING_HERE = "missingHere", "missing here"
    MISSING_THERE = "missingThere", "missing there"
    OLDER = "older", "older than what Annals keeps"
    TOO_NEW = "tooNew", "of the last minutes, not yet in both systems"


FAULTS: Final = frozenset({ComparisonVerdict.DIFFERENT, ComparisonVerdict.MISSING_HERE})


@dataclass(frozen=True, slots=True)
class ComparedVersion:
    """The result of the comparison of one version in Annals and in the old service."""

    kind: str
    id: str
    version: int
    verdict: ComparisonVerdict
    # the first MAX_PATHS differences: pointers into the snapshot, or fields of the envelope
    paths: tuple[str, ...] = ()
    clocks: bool = False  # whether updatedAt differs, which is not a fault


@dataclass(slots=True)
class ComparisonTotals:
    """How many versions a comparison with the old service found equal, different or missing."""

    applications: int = 0
    nowhere: int = 0  # applications that have no version in either system
    versions: Counter[ComparisonVerdict] = field(default_factory=Counter)
    clocks: int = 0  # versions with a different updatedAt in the old service
    unavailable: int = 0  # applications that one of the systems could not read

    @property
    def faults(self) -> int:
        """The number of versions that differ or are missing in Annals."""
        return sum(self.versions[verdict] for verdict in FAULTS)

    @property
    def is_ok(self) -> bool:
        """Whether the comparison shows that the old service can be replaced.

        At least one version is equal in both systems. No version is different or missing in
        Annals. Both systems could read each application.
        """
        return (
            bool(self.versions[ComparisonVerdict.EQUAL])
            and not self.unavailable
            and not self.faults
        )


def compare_application(
    stored: StoredVersions, old_rows: Sequence[SourceRow], kept_from: datetime
) -> Iterator[ComparedVersion]:
    """Compare the versions of one application in both systems, and yield each of them once.

    Args:
        stored: The versions that Annals has.
        old_rows: The versions that the old service has.
        kept_from: The start of retention: Annals may have removed older versions.
    """
    old_by_version = {VersionNumberRef(*row.entity_ref, row.version): row for row in old_rows}
    settled = clock.now() - SETTLE_PERIOD
    for ref in stored.keys() | old_by_version.keys():
        rows, old = stored.get(ref, ()), old_by_version.get(ref)
        if old is None:
            newest = max(row.updated_at for row in rows)
            verdict = (
                ComparisonVerdict.TOO_NEW if newest > settled else ComparisonVerdict.MISSING_THERE
            )
            yield ComparedVersion(ref.entity.name, ref.id, ref.version, verdict)
        elif not rows:
            verdict = (
                ComparisonVerdict.TOO_NEW
                if old.updated_at > settled
                else ComparisonVerdict.MISSING_HERE
            )
            if old.updated_at < kept_from:
                verdict = ComparisonVerdict.OLDER
            yield ComparedVersion(ref.entity.name, ref.id, ref.version, verdict)
        else:
            # If Annals has several versions with the number, take the one with fewest differences.
            yield min(
                (_compare_versions(row, old) for row in rows),
                key=lambda compared: (len(compared.paths), compared.clocks),
            )


def _compare_versions(row: VersionRow, old: SourceRow) -> ComparedVersion:
    envelope = {
        "type": (row.type, old.type),
        "clientId": (row.client_id, old.client_id),
        "author": (row.author, old.author),
        "productInstanceId": (row.product_instance_id, old.product_instance_id),
    }
    paths = [name for name, (value, old_value) in envelope.items() if value != old_value]
    entity = old.entity
    # A key path has the value that identifies a list item, so marked values are masked first.
    mask = masking.load_stored_mask(entity)
    old_data, new_data = ((mask(old.id, data) if mask else data) for data in (old.data, row.data))
    changes = diff.list_changes(
        parse_snapshot(old_data), parse_snapshot(new_data), get_identity(entity)
    )
    paths += [change.key_path or "(the whole document)" for change in changes]
    verdict = ComparisonVerdict.DIFFERENT if paths else ComparisonVerdict.EQUAL
    clocks = row.updated_at != old.updated_at
    return ComparedVersion(
        entity.name, old.id, old.version, verdict, tuple(paths[:MAX_PATHS]), clocks
    )


def load_stored_versions(reader: HistoryReader, application: str) -> StoredVersions:
    """Load all versions of an application and its children, by document and version number.

    A number has more than one version if a producer used it twice.

    Raises:
        DamagedBlockError: A block of the application cannot be read.
    """
    rows: dict[VersionNumberRef, list[VersionRow]] = defaultdict(list)
    reader = replace(reader, damaged={})
    members = timeline.fetch_members(reader, application)
    for error in reader.damaged.values():
        raise error
    for entity_ref, keys in members.items():
        refs = [VersionRef(*entity_ref, key) for key in keys]
        for row in sorted(timeline.fetch_all_versions(reader, refs).values()):
            if row.product_instance_id in (None, application):
                rows[VersionNumberRef(*entity_ref, row.version)].append(row)
    return rows


def sample_applications(number: int, seed: int) -> list[str]:
    """Return a random sample of up to `number` ids of applications.

    The same seed gives the same sample while the store does not change.
    """
    percent = _FIRST_PERCENT
    while True:
        statement = _SELECT_SAMPLE.format(table=get_root().table)
        sampled = prepared.fetch_rows(statement, {"percent": Float8(percent), "seed": Int4(seed)})
        if len(sampled) >= number or percent >= 100:
            ids = [id for (id,) in sampled]
            return random.Random(seed).sample(ids, min(number, len(ids)))  # noqa: S311 - no secret
        percent = min(100.0, percent * 8)
