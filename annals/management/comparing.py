"""Compares applications here and in the old service, version by version, without values."""

import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError
from django.db.models import TextChoices
from psycopg.types.numeric import Float8, Int4

from annals.access.journal.actions import AccessAction
from annals.access.journal.write import JournalError, record_operator_access
from history import diff, timeline
from history.common import clock
from history.common.complaints import FileError, read_text
from history.common.plain_text import to_one_line
from history.common.text_tables import pluralize
from history.documents.exactjson import dumps
from history.documents.record import ID_LENGTH
from history.kinds.entities import EntityKind, get_root
from history.management.progress import show_progress
from history.policy import masking
from history.store.blocks.codec import DamagedBlockError
from history.store.database import prepared
from history.store.versions import SourceRow, TimelineSubject, VersionRow, parse_snapshot
from history.timeline import HistoryReader, absence
from history.timeline.compose import get_identity
from history.timeline.fallback.answer import WrongAnswerError
from history.timeline.fallback.client import (
    OldServiceEndpoint,
    OldServiceError,
    fetch_timeline,
    load_endpoint,
)

# Younger versions may not have reached one of the two yet.
SETTLE_PERIOD: Final = timedelta(minutes=5)
MAX_PATHS: Final = 5

StoredVersions = Mapping[tuple[EntityKind, str, int], Sequence[VersionRow]]


# SYSTEM reads whole blocks, so that a sample costs little; REPEATABLE gives the same rows again.
_SELECT_SAMPLE: Final = """
    SELECT DISTINCT id FROM {table} TABLESAMPLE SYSTEM (%(percent)s) REPEATABLE (%(seed)s)
    ORDER BY id
"""
_FIRST_PERCENT: Final = 0.05


class ComparisonVerdict(TextChoices):
    """The result for one version. Only DIFFERENT and MISSING_HERE speak against the switch."""

    EQUAL = "equal", "equal"
    DIFFERENT = "different", "different"
    MISSING_HERE = "missingHere", "missing here"
    MISSING_THERE = "missingThere", "missing there"
    OLDER = "older", "older than what is kept here"
    TOO_NEW = "tooNew", "of the last minutes, not yet in both"


FAULTS: Final = frozenset({ComparisonVerdict.DIFFERENT, ComparisonVerdict.MISSING_HERE})


@dataclass(frozen=True, slots=True)
class ComparedVersion:
    """One version after the comparison."""

    kind: str
    id: str
    version: int
    verdict: ComparisonVerdict
    # the first differences: pointers into the snapshot, or fields of the envelope
    paths: tuple[str, ...] = ()
    clocks: bool = False  # whether updatedAt differs, which does not count


@dataclass(slots=True)
class ComparisonTotals:
    """The counts of a comparison."""

    applications: int = 0
    nowhere: int = 0  # applications without a version in either of the two
    versions: Counter[ComparisonVerdict] = field(default_factory=Counter)
    clocks: int = 0
    unavailable: int = 0  # applications that one of the two could not read

    @property
    def faults(self) -> int:
        """The number of versions that speak against the switch."""
        return sum(self.versions[verdict] for verdict in FAULTS)

    @property
    def is_ok(self) -> bool:
        """Whether versions were compared and none speaks against the switch."""
        return (
            bool(self.versions[ComparisonVerdict.EQUAL])
            and not self.unavailable
            and not self.faults
        )


def compare_application(
    stored: StoredVersions, old_rows: Sequence[SourceRow], kept_from: datetime
) -> Iterator[ComparedVersion]:
    """Compare the versions of one application, in any order.

    Args:
        stored: The versions here.
        old_rows: The versions of the old service.
        kept_from: Older versions may be removed here already.
    """
    old_by_version = {(row.entity, row.id, row.version): row for row in old_rows}
    settled = clock.now() - SETTLE_PERIOD
    for place in stored.keys() | old_by_version.keys():
        entity, id, number = place
        rows, old = stored.get(place, ()), old_by_version.get(place)
        if old is None:
            newest = max(row.updated_at for row in rows)
            verdict = (
                ComparisonVerdict.TOO_NEW if newest > settled else ComparisonVerdict.MISSING_THERE
            )
            yield ComparedVersion(entity.name, id, number, verdict)
        elif not rows:
            verdict = (
                ComparisonVerdict.TOO_NEW
                if old.updated_at > settled
                else ComparisonVerdict.MISSING_HERE
            )
            if old.updated_at < kept_from:
                verdict = ComparisonVerdict.OLDER
            yield ComparedVersion(entity.name, id, number, verdict)
        else:
            # If two versions here have the same number, take the one with fewer differences.
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
    # Paths into lists have the value that identifies an item, so marked values are masked first.
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


APPLICATION_SECONDS: Final = 30.0  # for one application; no person waits for it

MAX_FAILURES: Final = 5  # successive failures after which it gives up

MAX_LISTED: Final = 200


def run(command: BaseCommand, **options: Any) -> None:
    """Compare and print the result. Exits with 0 or 1, or raises CommandError."""
    old = load_endpoint()
    if old is None:
        raise CommandError(
            "there is no old service: ANNALS_FALLBACK_URL is unset, or ANNALS_FALLBACK_UNTIL "
            "is over. See docs/migration.md.",
            returncode=2,
        )
    application_ids = _choose_applications(options)
    try:
        text = f"annals compare-old: {pluralize(len(application_ids), 'application')}"
        record_operator_access(AccessAction.COMPARE, text, options["reason"])
    except JournalError as error:
        raise CommandError(str(error), returncode=2) from None
    totals = ComparisonTotals()
    listed: list[ComparedVersion] = []
    with show_progress("compared, applications", len(application_ids), sys.stderr) as advance:
        for compared in _compare_applications(command, old, application_ids, totals, advance):
            totals.versions[compared.verdict] += 1
            totals.clocks += compared.clocks
            if compared.verdict is not ComparisonVerdict.EQUAL and len(listed) < MAX_LISTED:
                listed.append(compared)
    if options["as_json"]:
        command.stdout.write(dumps(_to_summary(totals, listed)).decode())
    else:
        for line in _format_lines(totals, listed):
            command.stdout.write(to_one_line(line))
    sys.exit(0 if totals.is_ok else 1)


def _choose_applications(options: dict[str, Any]) -> Sequence[str]:
    """Return the ids of the applications to compare. Raises CommandError."""
    if options["applications"] is None:
        return sample_applications(options["sample"], options["seed"])
    try:
        text = read_text(options["applications"])
    except FileError as error:
        raise CommandError(f"--applications: {error}", returncode=2) from None
    lines = [line for text_line in text.splitlines() if (line := text_line.strip())]
    if not lines:
        raise CommandError(f"{options['applications']} has no id", returncode=2)
    if long := next((id for id in lines if len(id) > ID_LENGTH), None):
        raise CommandError(f"no id is so long: {to_one_line(long)}", returncode=2)
    return list(dict.fromkeys(lines))


def _compare_applications(
    command: BaseCommand,
    old: OldServiceEndpoint,
    application_ids: Sequence[str],
    totals: ComparisonTotals,
    advance: Callable[[int], None],
) -> Iterator[ComparedVersion]:
    failures = 0
    kept_from = absence.get_retention_start()
    reader = timeline.make_host_reader(in_clear=True)
    for id in application_ids:
        advance(1)
        try:
            old_rows = fetch_timeline(old, TimelineSubject(None, id), APPLICATION_SECONDS)
        except (OldServiceError, WrongAnswerError) as error:
            totals.unavailable += 1
            failures += 1
            command.stderr.write(f"application {to_one_line(id)} was not compared: {error}")
            if failures == MAX_FAILURES:
                text = f"the old service failed {MAX_FAILURES} times in a row; nothing was proved"
                raise CommandError(text, returncode=2) from None
            continue
        failures = 0
        try:
            stored = _load_stored(reader, id)
        except DamagedBlockError as error:
            totals.unavailable += 1
            command.stderr.write(f"application {to_one_line(id)} was not compared: {error}")
            continue
        totals.applications += 1
        totals.nowhere += not stored and not old_rows
        yield from sorted(
            compare_application(stored, old_rows, kept_from),
            key=attrgetter("kind", "id", "version"),
        )


def _to_summary(totals: ComparisonTotals, listed: Sequence[ComparedVersion]) -> dict[str, Any]:
    return {
        "ok": totals.is_ok,
        "applications": totals.applications,
        "nowhere": totals.nowhere,
        "unavailable": totals.unavailable,
        "versions": {verdict.value: totals.versions[verdict] for verdict in ComparisonVerdict},
        "otherTimes": totals.clocks,
        "listed": [asdict(compared) for compared in listed],
    }


def _format_lines(totals: ComparisonTotals, listed: Sequence[ComparedVersion]) -> Iterator[str]:
    """Generate the lines of the result for people."""
    for entry in listed:
        where = f": {', '.join(entry.paths)}" if entry.paths else ""
        yield f"{entry.verdict.label}: {entry.kind} {entry.id} version {entry.version}{where}"
    if unlisted := totals.versions.total() - totals.versions[ComparisonVerdict.EQUAL] - len(listed):
        yield f"... and {unlisted:,} more"
    yield f"{pluralize(totals.applications, 'application')} compared"
    for verdict in ComparisonVerdict:
        yield f"{totals.versions[verdict]:>10,}  {verdict.label}"
    yield f"{totals.clocks:>10,}  of those in both have another time there"
    if totals.unavailable:
        yield f"{totals.unavailable:>10,}  not compared"
    if totals.nowhere:
        yield f"{totals.nowhere:>10,}  in neither of the two"
    if totals.faults:
        singular, plural = (
            "version is missing here or differs",
            "versions are missing here or differ",
        )
        yield f"{pluralize(totals.faults, singular, plural)}."
    elif totals.is_ok:
        yield "Nothing is missing here or differs."
    elif not totals.versions[ComparisonVerdict.EQUAL]:
        yield (
            "No version is in both, so nothing was proved: are DATABASE_URL, "
            "ANNALS_FALLBACK_URL and the ids the right ones?"
        )


def _load_stored(reader: HistoryReader, application: str) -> StoredVersions:
    """Load all versions of an application and its children.

    A number has more than one version if a producer used it twice.

    Raises:
        DamagedBlockError: A block of the application cannot be read.
    """
    rows: dict[tuple[EntityKind, str, int], list[VersionRow]] = defaultdict(list)
    reader = replace(reader, damaged={})
    members = timeline.fetch_members(reader, application)
    for error in reader.damaged.values():
        raise error
    for (entity, id), keys in members.items():
        for row in sorted(
            timeline.fetch_all_versions(reader, ((entity, id, key) for key in keys)).values()
        ):
            if row.product_instance_id in (None, application):
                rows[entity, id, row.version].append(row)
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
