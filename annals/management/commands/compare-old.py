"""`annals compare-old`: compares applications with the service that Annals replaces."""  # noqa: N999 - its name

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser

from history.common.explained_errors import FileError, read_text
from history.common.plain_text import to_one_line
from history.common.text_tables import pluralize
from history.documents.record import ID_LENGTH
from history.management.numbers import make_whole_parser

if TYPE_CHECKING:
    from annals.management.comparison import ComparedVersion, ComparisonTotals
    from history.timeline.fallback.client import OldServiceEndpoint


APPLICATION_SECONDS: Final = 30.0  # how long the old service may take for one application
MAX_FAILURES: Final = 5  # the command gives up after this many failures in a row
MAX_LISTED: Final = 200  # how many versions that are not equal are listed


class Command(BaseCommand):
    help = (
        "Compare applications version by version with the service that Annals replaces "
        "(ANNALS_FALLBACK_URL); prints paths, never values; exit 0: no version is different or "
        "missing in Annals, 1: a version is different or missing in Annals, an application could "
        "not be compared, or no version is in both systems, 2: the command failed."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--sample",
            type=make_whole_parser(1, 10_000_000),
            default=1000,
            help="number of applications, chosen at random (default %(default)s)",
        )
        parser.add_argument(
            "--seed", type=int, default=1, help="another number chooses other applications"
        )
        parser.add_argument(
            "--applications",
            type=Path,
            metavar="FILE",
            help="file with the ids of the applications to compare instead, one on each line; they "
            "need not be in Annals",
        )
        parser.add_argument("--reason", default="", help="why, kept in the access journal")
        parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")

    def handle(self, *_: Any, **options: Any) -> None:
        """Compare applications in Annals and the old service, print the result, exit with 0 or 1.

        0 means that the comparison shows that the old service can be replaced.

        Raises:
            CommandError: The comparison failed.
        """
        from annals.access.journal.actions import AccessAction
        from annals.access.journal.write import JournalError, record_operator_access
        from annals.management.comparison import ComparisonTotals, ComparisonVerdict
        from history.documents.exactjson import dumps
        from history.management.progress import show_progress
        from history.timeline.fallback.client import load_endpoint

        old = load_endpoint()
        if old is None:
            raise CommandError(
                "no old service is configured: ANNALS_FALLBACK_URL is unset, or the day of "
                "ANNALS_FALLBACK_UNTIL has passed. See docs/migration.md.",
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
            for compared in _compare_applications(self, old, application_ids, totals, advance):
                totals.versions[compared.verdict] += 1
                totals.clocks += compared.clocks
                if compared.verdict is not ComparisonVerdict.EQUAL and len(listed) < MAX_LISTED:
                    listed.append(compared)
        if options["as_json"]:
            self.stdout.write(dumps(_to_summary(totals, listed)).decode())
        else:
            for line in _format_lines(totals, listed):
                self.stdout.write(to_one_line(line))
        sys.exit(0 if totals.is_ok else 1)


def _choose_applications(options: dict[str, Any]) -> Sequence[str]:
    """Return the ids of the applications to compare: from the file, or a random sample.

    Raises:
        CommandError: The file cannot be read, has no id, or has an id that is too long.
    """
    from annals.management.comparison import sample_applications

    if options["applications"] is None:
        return sample_applications(options["sample"], options["seed"])
    try:
        text = read_text(options["applications"])
    except FileError as error:
        raise CommandError(f"--applications: {error}", returncode=2) from None
    lines = [line for text_line in text.splitlines() if (line := text_line.strip())]
    if not lines:
        raise CommandError(f"the file {options['applications']} has no ids", returncode=2)
    if long_id := next((id for id in lines if len(id) > ID_LENGTH), None):
        raise CommandError(
            f"the file {options['applications']} has an id of more than {ID_LENGTH} characters: "
            f"{to_one_line(long_id)}",
            returncode=2,
        )
    return list(dict.fromkeys(lines))


def _compare_applications(
    command: BaseCommand,
    old: OldServiceEndpoint,
    application_ids: Sequence[str],
    totals: ComparisonTotals,
    advance: Callable[[int], None],
) -> Iterator[ComparedVersion]:
    """Compare the applications one by one, and yield each compared version.

    Args:
        totals: Gets the counts of applications.
        advance: Called with 1 for each application.

    Raises:
        CommandError: The old service failed MAX_FAILURES times in a row.
    """
    from annals.management.comparison import compare_application, load_stored_versions
    from history import timeline
    from history.store.blocks.codec import DamagedBlockError
    from history.store.versions import TimelineSubject
    from history.timeline import absence
    from history.timeline.fallback.answer import WrongAnswerError
    from history.timeline.fallback.client import OldServiceError, fetch_timeline

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
            stored = load_stored_versions(reader, id)
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
    from annals.management.comparison import ComparisonVerdict

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
    """Generate the lines that the command prints without --json."""
    from annals.management.comparison import ComparisonVerdict

    for entry in listed:
        where = f": {', '.join(entry.paths)}" if entry.paths else ""
        yield f"{entry.verdict.label}: {entry.kind} {entry.id} version {entry.version}{where}"
    if unlisted := totals.versions.total() - totals.versions[ComparisonVerdict.EQUAL] - len(listed):
        yield f"... and {unlisted:,} more"
    yield f"{pluralize(totals.applications, 'application')} compared"
    for verdict in ComparisonVerdict:
        yield f"{totals.versions[verdict]:>10,}  {verdict.label}"
    yield f"{totals.clocks:>10,}  of the versions in both systems have another time in the old one"
    if totals.unavailable:
        yield f"{totals.unavailable:>10,}  not compared"
    if totals.nowhere:
        yield f"{totals.nowhere:>10,}  in neither of the two systems"
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
