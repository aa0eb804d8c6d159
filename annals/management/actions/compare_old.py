"""What `annals compare-old` does."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError

from annals.access.journal.words import Action
from annals.access.journal.write import JournalError, record
from annals.management.comparing import Compared, Tally, Verdict, compare
from history import masking
from history.base.plain_text import one_line
from history.base.table import counted
from history.documents.exactjson import dumps
from history.failure.complaints import FileError, read_text
from history.fallback import OldServiceError, Service, Subject, WrongAnswerError, service
from history.fallback.client import fetch
from history.management.progress import Progress
from history.record import ID_LENGTH
from history.timeline import absence
from history.timeline.sources import members

SECONDS: Final = 30.0  # for one application: nobody waits for it

FAILURES: Final = 5  # in a row, before it gives up

MOST_LISTED: Final = 200

_WORDS: Final = {
    Verdict.EQUAL: "equal",
    Verdict.DIFFERENT: "different",
    Verdict.MISSING_HERE: "missing here",
    Verdict.MISSING_THERE: "missing there",
    Verdict.OLDER: "older than what is kept here",
    Verdict.TOO_NEW: "of the last minutes, not yet in both",
}


class Run:
    """The action of one call of the command."""

    def __init__(self, command: BaseCommand) -> None:
        self.stdout, self.stderr = command.stdout, command.stderr

    def handle(self, **options: Any) -> None:
        old = service()
        if old is None:
            raise CommandError(
                "there is no old service: ANNALS_FALLBACK_URL is unset, or ANNALS_FALLBACK_UNTIL "
                "is over. See docs/migration.md.",
                returncode=2,
            )
        chosen = self._chosen(options)
        try:
            text = f"annals compare-old: {counted(len(chosen), 'application')}"
            record(Action.COMPARE, text, options["reason"])
        except JournalError as error:
            text = f"the access journal cannot be written, so nothing was compared: {error}"
            raise CommandError(text, returncode=2) from None
        tally = Tally()
        listed: list[Compared] = []
        with Progress("compared, applications", len(chosen), sys.stderr) as progress:
            for compared in self._compared(old, chosen, tally, progress):
                tally.add(compared)
                if compared.verdict is not Verdict.EQUAL and len(listed) < MOST_LISTED:
                    listed.append(compared)
        self._print(tally, listed, as_json=options["as_json"])
        sys.exit(0 if tally.ok else 1)

    def _chosen(self, options: dict[str, Any]) -> Sequence[str]:
        if options["applications"] is None:
            return members.applications(options["sample"], options["seed"])
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
        self, old: Service, chosen: Sequence[str], tally: Tally, progress: Progress
    ) -> Iterator[Compared]:
        failures = 0
        kept = absence.kept_from()
        for id in chosen:
            progress.advance()
            try:
                theirs = fetch(old, Subject(None, id), SECONDS)
            except (OldServiceError, WrongAnswerError) as error:
                tally.unavailable += 1
                failures += 1
                self.stderr.write(f"application {one_line(id)} was not compared: {error}")
                if failures == FAILURES:
                    text = f"the old service failed {FAILURES} times in a row; nothing was proved"
                    raise CommandError(text, returncode=2) from None
                continue
            failures = 0
            with masking.in_clear():
                stored = members.versions(id)
            tally.applications += 1
            tally.nowhere += not stored and not theirs
            yield from sorted(compare(stored, theirs, kept), key=_place)

    def _print(self, tally: Tally, listed: Sequence[Compared], *, as_json: bool) -> None:
        counts = {verdict.value: tally.versions[verdict] for verdict in Verdict}
        if as_json:
            summary = {
                "ok": tally.ok,
                "applications": tally.applications,
                "nowhere": tally.nowhere,
                "unavailable": tally.unavailable,
                "versions": counts,
                "otherTimes": tally.clocks,
                "listed": [asdict(each) for each in listed],
            }
            self.stdout.write(dumps(summary).decode())
            return
        for each in listed:
            where = f": {', '.join(each.paths)}" if each.paths else ""
            line = f"{_WORDS[each.verdict]}: {each.kind} {each.id} version {each.version}{where}"
            self.stdout.write(one_line(line))
        rest = sum(tally.versions.values()) - tally.versions[Verdict.EQUAL] - len(listed)
        if rest:
            self.stdout.write(f"... and {rest:,} more")
        self.stdout.write(f"{counted(tally.applications, 'application')} compared")
        for verdict in Verdict:
            self.stdout.write(f"{tally.versions[verdict]:>10,}  {_WORDS[verdict]}")
        self.stdout.write(f"{tally.clocks:>10,}  of those in both have another time there")
        if tally.unavailable:
            self.stdout.write(f"{tally.unavailable:>10,}  not compared")
        if tally.nowhere:
            self.stdout.write(f"{tally.nowhere:>10,}  in neither of the two")
        if tally.faults:
            faults = counted(
                tally.faults,
                "version is missing here or differs",
                "versions are missing here or differ",
            )
            self.stdout.write(f"{faults}.")
        elif tally.ok:
            self.stdout.write("Nothing is missing here or differs.")
        elif not tally.versions[Verdict.EQUAL]:
            self.stdout.write(
                "No version is in both, so nothing was proved: are DATABASE_URL, "
                "ANNALS_FALLBACK_URL and the ids the right ones?"
            )


def _place(compared: Compared) -> tuple[str, str, int]:
    return compared.kind, compared.id, compared.version
