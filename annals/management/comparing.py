"""Compares one application here and in the old service, version by version. Shows no values."""

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

from annals.access.journal.words import Action
from annals.access.journal.write import JournalError, record
from history import diff, masking, timeline
from history.base import clock
from history.base.plain_text import one_line
from history.base.table import counted
from history.blocks.form import DamagedBlockError
from history.database import prepared
from history.documents.exactjson import dumps
from history.entities import Entity, root
from history.failure.complaints import FileError, read_text
from history.fallback.answer import WrongAnswerError
from history.fallback.client import OldServiceError, Service, fetch, service
from history.management.progress import progress
from history.record import ID_LENGTH
from history.timeline import Reader, absence
from history.timeline.compose import identity
from history.versions import Subject, VersionRow, parse

# Versions of the last minutes may still be on their way to one of the two.
SETTLE: Final = timedelta(minutes=5)
MOST_PATHS: Final = 5

Stored = Mapping[tuple[Entity, str, int], Sequence[VersionRow]]


# SYSTEM reads whole blocks, so that a sample costs little; REPEATABLE gives the same rows again.
_SAMPLE: Final = """
    SELECT DISTINCT id FROM {table} TABLESAMPLE SYSTEM (%(percent)s) REPEATABLE (%(seed)s)
    ORDER BY id
"""
_FIRST_PERCENT: Final = 0.05


class Verdict(TextChoices):
    """What a comparison says of one version. The last three do not speak against the switch."""

    EQUAL = "equal", "equal"
    DIFFERENT = "different", "different"
    MISSING_HERE = "missingHere", "missing here"
    MISSING_THERE = "missingThere", "missing there"
    OLDER = "older", "older than what is kept here"
    TOO_NEW = "tooNew", "of the last minutes, not yet in both"


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
class ComparedCounts:
    """What was found so far. nowhere: applications of which neither of the two has a version.
    unavailable: applications that the old service did not give, or that cannot be read here."""

    applications: int = 0
    nowhere: int = 0
    versions: Counter[Verdict] = field(default_factory=Counter)
    clocks: int = 0
    unavailable: int = 0

    @property
    def faults(self) -> int:
        """Versions that speak against the switch."""
        return sum(self.versions[each] for each in FAULTS)

    @property
    def ok(self) -> bool:
        """Whether something was compared, and nothing speaks against the switch."""
        return bool(self.versions[Verdict.EQUAL]) and not self.unavailable and not self.faults


def compare(stored: Stored, theirs: Sequence[VersionRow], kept: datetime) -> Iterator[Compared]:
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
            verdict = Verdict.TOO_NEW if old.updated_at > settled else Verdict.MISSING_HERE
            if old.updated_at < kept:
                verdict = Verdict.OLDER
            yield Compared(entity.name, id, number, verdict)
        else:
            # Where we have two versions of one number, the one that fits best.
            yield min((_both(row, old) for row in ours), key=lambda it: (len(it.paths), it.clocks))


def _both(row: VersionRow, old: VersionRow) -> Compared:
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


SECONDS: Final = 30.0  # for one application: nobody waits for it

FAILURES: Final = 5  # in a row, before it gives up

MOST_LISTED: Final = 200


def run(command: BaseCommand, **options: Any) -> None:
    """Compare and print. options: as the command declares them. Exits with 0 or 1, or raises
    CommandError."""
    old = service()
    if old is None:
        raise CommandError(
            "there is no old service: ANNALS_FALLBACK_URL is unset, or ANNALS_FALLBACK_UNTIL "
            "is over. See docs/migration.md.",
            returncode=2,
        )
    chosen = _chosen(options)
    try:
        text = f"annals compare-old: {counted(len(chosen), 'application')}"
        record(Action.COMPARE, text, options["reason"])
    except JournalError as error:
        raise CommandError(str(error), returncode=2) from None
    tally = ComparedCounts()
    listed: list[Compared] = []
    with progress("compared, applications", len(chosen), sys.stderr) as advance:
        for compared in _compared(command, old, chosen, tally, advance):
            tally.versions[compared.verdict] += 1
            tally.clocks += compared.clocks
            if compared.verdict is not Verdict.EQUAL and len(listed) < MOST_LISTED:
                listed.append(compared)
    if options["as_json"]:
        command.stdout.write(dumps(_as_object(tally, listed)).decode())
    else:
        for line in _lines(tally, listed):
            command.stdout.write(one_line(line))
    sys.exit(0 if tally.ok else 1)


def _chosen(options: dict[str, Any]) -> Sequence[str]:
    """The ids of the applications to compare. Raises CommandError."""
    if options["applications"] is None:
        return applications(options["sample"], options["seed"])
    try:
        text = read_text(options["applications"])
    except FileError as error:
        raise CommandError(f"--applications: {error}", returncode=2) from None
    lines = [line for each in text.splitlines() if (line := each.strip())]
    if not lines:
        raise CommandError(f"{options['applications']} has no id", returncode=2)
    if long := next((each for each in lines if len(each) > ID_LENGTH), None):
        raise CommandError(f"no id is so long: {one_line(long)}", returncode=2)
    return list(dict.fromkeys(lines))


def _compared(
    command: BaseCommand,
    old: Service,
    chosen: Sequence[str],
    tally: ComparedCounts,
    advance: Callable[[int], None],
) -> Iterator[Compared]:
    failures = 0
    kept = absence.kept_from()
    reader = timeline.on_host(in_clear=True)
    for id in chosen:
        advance(1)
        try:
            theirs = fetch(old, Subject(None, id), SECONDS)
        except (OldServiceError, WrongAnswerError) as error:
            tally.unavailable += 1
            failures += 1
            command.stderr.write(f"application {one_line(id)} was not compared: {error}")
            if failures == FAILURES:
                text = f"the old service failed {FAILURES} times in a row; nothing was proved"
                raise CommandError(text, returncode=2) from None
            continue
        failures = 0
        try:
            stored = _stored(reader, id)
        except DamagedBlockError as error:
            tally.unavailable += 1
            command.stderr.write(f"application {one_line(id)} was not compared: {error}")
            continue
        tally.applications += 1
        tally.nowhere += not stored and not theirs
        yield from sorted(compare(stored, theirs, kept), key=attrgetter("kind", "id", "version"))


def _as_object(tally: ComparedCounts, listed: Sequence[Compared]) -> dict[str, Any]:
    return {
        "ok": tally.ok,
        "applications": tally.applications,
        "nowhere": tally.nowhere,
        "unavailable": tally.unavailable,
        "versions": {verdict.value: tally.versions[verdict] for verdict in Verdict},
        "otherTimes": tally.clocks,
        "listed": [asdict(each) for each in listed],
    }


def _lines(tally: ComparedCounts, listed: Sequence[Compared]) -> Iterator[str]:
    """What was found, for people."""
    for each in listed:
        where = f": {', '.join(each.paths)}" if each.paths else ""
        yield f"{each.verdict.label}: {each.kind} {each.id} version {each.version}{where}"
    if rest := tally.versions.total() - tally.versions[Verdict.EQUAL] - len(listed):
        yield f"... and {rest:,} more"
    yield f"{counted(tally.applications, 'application')} compared"
    for verdict in Verdict:
        yield f"{tally.versions[verdict]:>10,}  {verdict.label}"
    yield f"{tally.clocks:>10,}  of those in both have another time there"
    if tally.unavailable:
        yield f"{tally.unavailable:>10,}  not compared"
    if tally.nowhere:
        yield f"{tally.nowhere:>10,}  in neither of the two"
    if tally.faults:
        one, several = "version is missing here or differs", "versions are missing here or differ"
        yield f"{counted(tally.faults, one, several)}."
    elif tally.ok:
        yield "Nothing is missing here or differs."
    elif not tally.versions[Verdict.EQUAL]:
        yield (
            "No version is in both, so nothing was proved: are DATABASE_URL, "
            "ANNALS_FALLBACK_URL and the ids the right ones?"
        )


def _stored(reader: Reader, application: str) -> Stored:
    """All versions of an application and its children; more than one of a number where a producer
    gave it twice. Raises DamagedBlockError."""
    found: dict[tuple[Entity, str, int], list[VersionRow]] = defaultdict(list)
    reader = replace(reader, damaged={})
    members = reader.members(application)
    for error in reader.damaged.values():
        raise error
    for (entity, id), keys in members.items():
        for row in sorted(reader.bodies((entity, id, key) for key in keys).values()):
            if row.product_instance_id in (None, application):
                found[entity, id, row.version].append(row)
    return found


def applications(number: int, seed: int) -> list[str]:
    """The ids of up to this many applications, the same ones again for one seed as long as the
    store is the same. Fewer where the store has fewer."""
    percent = _FIRST_PERCENT
    while True:
        statement = _SAMPLE.format(table=root().table)
        found = prepared.fetch(statement, {"percent": Float8(percent), "seed": Int4(seed)})
        if len(found) >= number or percent >= 100:
            ids = [id for (id,) in found]
            return random.Random(seed).sample(ids, min(number, len(ids)))  # noqa: S311 - no secret
        percent = min(100.0, percent * 8)
