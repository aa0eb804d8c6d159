"""`manage.py inbox`: processes messages, and says what waits."""

from __future__ import annotations

import json
import signal
from argparse import ArgumentParser
from dataclasses import asdict, replace
from types import FrameType
from typing import Any

from django.core.management import BaseCommand, CommandError
from django.db import router

from outbox.errors import WrongSettings, counted
from outbox.inbox import status
from outbox.inbox.conf import conf
from outbox.inbox.loop import Consume
from outbox.inbox.models import Waiting


class Command(BaseCommand):
    """The command of the inbox."""

    help = "Process messages from Kafka, or say what waits"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The actions and their options."""
        actions = parser.add_subparsers(dest="action", required=True)
        consume = actions.add_parser("consume", help="process messages, until stopped")
        consume.add_argument(
            "--topics", nargs="+", default=(), help="only these (default: those of all handlers)"
        )
        consume.add_argument("--group", help='consumer group (default: INBOX["GROUP"])')
        consume.add_argument(
            "--until-idle",
            type=float,
            metavar="SECONDS",
            help="end once nothing was read or processed for so long",
        )
        state = actions.add_parser("status", help="what waits, what failed, and what is dead")
        state.add_argument("--json", action="store_true", help="as one JSON object")
        for action in (consume, state):
            action.add_argument("--database", help="alias of the database (default: the router's)")

    def handle(self, *_: Any, **options: Any) -> None:
        """Run the action."""
        alias = options["database"] or router.db_for_write(Waiting)
        if options["action"] == "status":
            self._say(alias, options["json"])
        else:
            self._consume(alias, options)

    def _consume(self, alias: str, options: dict[str, Any]) -> None:
        try:
            given = conf()
            loop = Consume(
                replace(given, group=options["group"] or given.group),
                alias,
                options["topics"],
                until_idle=options["until_idle"],
            )

            def stop(_: int, __: FrameType | None) -> None:
                loop.stop.set()

            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, stop)
            loop.run()
        except WrongSettings as error:
            raise CommandError(str(error)) from None

    def _say(self, alias: str, as_json: bool) -> None:
        found = status.read(alias)
        if as_json:
            self.stdout.write(json.dumps({name: asdict(each) for name, each in found.items()}))
            return
        for name, each in found.items():
            waiting = counted(sum(each.states.values()), "message waits", "messages wait")
            dead = counted(each.states["dead"], "is a dead letter", "are dead letters")
            done = counted(each.counts.get("done", 0), "was processed", "were processed")
            self.stdout.write(
                f"{name}: {waiting}, the oldest for {each.oldest_seconds:.1f} s;"
                f" {each.states['failed']:,} failed, {dead}; {done}."
            )
            for reason, times in each.failures.items():
                self.stdout.write(f"{name}: {counted(times, 'failure')}: {reason}")
