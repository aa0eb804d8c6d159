"""What `annals gaps heal` does."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from functools import partial
from typing import Any

import psycopg
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import Error
from django.utils import translation

from annals.healing import memory, sources
from annals.healing.old_source import OldSource
from annals.healing.outbox_source import OutboxSource
from annals.healing.run import BusyError, Outcome, Selection, documents, heal
from annals.healing.sources import SourcesError
from annals.healing.wanted import Asked
from history import fallback
from history.base.error_text import describe
from history.base.plain_text import one_line
from history.base.table import counted
from history.gaps.run import latest
from history.management.progress import Progress
from ingest.management.actions.consume import decoding, refuse_other_tables
from ingest.store.missing_days import current, kept
from ingest.store.outside import Outside
from ingest.store.session import connect

_NOT_LOOKED = "Nobody has looked for gaps yet: run annals gaps first."


class Run:
    """The action of one call of the command."""

    def __init__(self, command: BaseCommand) -> None:
        self.stdout, self.stderr = command.stdout, command.stderr

    def handle(self, **options: Any) -> None:
        with translation.override("en"):
            refuse_other_tables()
            known = every()
            asked = chosen(known, options["source"])
            if options["limit"] is not None and options["limit"] < 1:
                raise CommandError("--limit must be 1 or more.", returncode=2)
            selection = Selection(options["entity"], options["limit"], options["again"])
            if options["dry_run"]:
                self._plan(asked, selection)
            else:
                names = [each.name for each in known]
                self._heal(asked, names, selection, options["json"] or options["heal_json"])

    def _plan(self, asked: list[Asked], selection: Selection) -> None:
        nothing = True
        for source in asked:
            for some in documents(source, selection):
                for document in some:
                    numbers = ", ".join(
                        f"{first}" if first == last else f"{first}-{last}"
                        for first, last in document.missing
                    )
                    line = f"{source.name} {document.entity.name} {document.id} {numbers}"
                    self.stdout.write(one_line(line))
                    nothing = False
        if latest() is None:
            self.stdout.write(_NOT_LOOKED)
        elif nothing:
            self.stdout.write(
                "There is nothing to ask for: no gap is open, or all have been asked for."
            )

    def _heal(
        self, asked: list[Asked], names: list[str], selection: Selection, as_json: bool
    ) -> None:
        done: list[Outcome] = []
        try:
            with (
                connect("annals-heal") as connection,
                Progress("asked for, documents", None, self.stderr) as shown,  # type: ignore[arg-type] # a wrapper
            ):
                memory.forget_others(connection, names)
                outside = Outside(connection, partial(kept, connection), decoding())
                done.extend(heal(outside, asked, selection, current, shown.advance))
        except BusyError:
            self.stderr.write("Another run asks at this moment; this one asks nobody.")
        except (psycopg.Error, Error) as error:
            self._print(done, as_json)
            text = f"The database: {describe(error)}. What was answered before is kept."
            raise CommandError(text, returncode=2) from None
        self._print(done, as_json)
        if not all(each.ok for each in done):
            sys.exit(1)

    def _print(self, done: list[Outcome], as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps({"sources": [as_object(each) for each in done]}))
            return
        if latest() is None:
            self.stdout.write(_NOT_LOOKED)
        for each in done:
            self.stdout.write(one_line(sentence(each)))


def every() -> list[Asked]:
    """Whom one can ask, in this order: the services of the file, then the old service."""
    file = settings.ANNALS.sources_file
    try:
        found: list[Asked] = [OutboxSource(each) for each in sources.read(file)] if file else []
    except SourcesError as error:
        text = f"ANNALS_SOURCES_FILE is wrong: {error}. See docs/gaps.md."
        raise CommandError(text, returncode=2) from None
    old = fallback.service()
    if old is not None:
        found.append(OldSource(old))
    if not found:
        text = "There is nobody to ask: set ANNALS_SOURCES_FILE. See docs/gaps.md."
        raise CommandError(text, returncode=2)
    return found


def chosen(known: list[Asked], name: str | None) -> list[Asked]:
    """All, or the one with this name."""
    found = [each for each in known if name in (None, each.name)]
    if not found:
        names = ", ".join(each.name for each in known)
        raise CommandError(f"--source: there is no {name!r}; there are {names}.", returncode=2)
    return found


def sentence(done: Outcome) -> str:
    """What came of a source, in words."""
    if done.later is not None:
        moment = f"{done.later:%Y-%m-%d %H:%M} UTC"
        return f"{done.source}: failed before, is asked again after {moment}, or with --again."
    kept = done.kept
    parts = [
        f"{done.source}: asked for {counted(kept.asked, 'version')} of "
        f"{counted(done.documents, 'document')}",
        f"{kept.recovered:,} recovered",
        f"{kept.there:,} here already",
        f"{kept.refused:,} refused, {kept.quarantined:,} of them in quarantine",
        f"{kept.unanswerable:,} it does not have",
        f"{kept.waiting:,} it sends later",
        counted(done.wrong, "wrong answer"),
    ]
    end = " The next run asks for the rest." if done.unfinished else ""
    end = f" STOPPED: {done.failed}." if done.failed else end
    return f"{'; '.join(parts)}.{end}"


def as_object(done: Outcome) -> dict[str, Any]:
    """The same as JSON values."""
    return {
        "source": done.source,
        "documents": done.documents,
        **asdict(done.kept),
        "wrongAnswers": done.wrong,
        "failed": done.failed or None,
        "later": done.later and done.later.isoformat(),
        "unfinished": done.unfinished,
    }
