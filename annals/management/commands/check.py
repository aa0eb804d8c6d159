"""`annals check`: what is wrong with the settings, the code and the servers; also as JSON."""

from __future__ import annotations

import json
from typing import Any

from django.core import checks
from django.core.checks import CheckMessage
from django.core.management.base import CommandError, CommandParser, SystemCheckError
from django.core.management.commands import check
from django.db.models import Model

LEVELS = {
    checks.DEBUG: "DEBUG",
    checks.INFO: "INFO",
    checks.WARNING: "WARNING",
    checks.ERROR: "ERROR",
    checks.CRITICAL: "CRITICAL",
}


class Command(check.Command):
    help = (
        "Look for mistakes in settings and code; with --deploy for what an installation lacks, "
        "with --database default also for what is wrong with the servers."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--json", action="store_true", help="print JSON, the worst first")

    def handle(self, *labels: Any, **options: Any) -> None:
        if options["json"] and options["list_tags"]:
            raise CommandError("--list-tags has no JSON: leave out one of both.")
        self.as_json = options["json"]
        super().handle(*labels, **options)

    def check(self, *args: Any, **asked: Any) -> None:
        """Django's handle calls it. Exits with 1 if a message has the level."""
        if not self.as_json:
            self._in_text(*args, **asked)
            return
        fail_level = asked.pop("fail_level")
        del asked["display_num_errors"]
        found = [each for each in checks.run_checks(*args, **asked) if not each.is_silenced()]
        found.sort(key=lambda each: -each.level)
        self.stdout.write(json.dumps([_object(each) for each in found], ensure_ascii=False))
        if any(each.is_serious(fail_level) for each in found):
            raise SystemExit(1)

    def _in_text(self, *args: Any, **asked: Any) -> None:
        """Django writes warnings to standard error, and raises what makes the command fail. Both
        are findings."""
        self.stderr, usual = self.stdout, self.stderr
        try:
            super().check(*args, **asked)
        except SystemCheckError as error:
            self.stdout.write(str(error))
            raise SystemExit(1) from None
        finally:
            self.stderr = usual


def _object(found: CheckMessage) -> dict[str, str | None]:
    return {
        "id": found.id,
        "level": LEVELS.get(found.level, str(found.level)),
        "object": _name(found.obj),
        "message": str(found.msg),
        "hint": None if found.hint is None else str(found.hint),
    }


def _name(of: object) -> str | None:
    if isinstance(of, type) and issubclass(of, Model):
        return of._meta.label
    return None if of is None else str(of)
