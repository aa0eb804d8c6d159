"""`manage.py outbox`: sends what was recorded, and says what waits."""

from __future__ import annotations

import json
import signal
from argparse import ArgumentParser
from dataclasses import asdict
from types import FrameType
from typing import Any

from django.core.management import BaseCommand, CommandError
from django.db import router

from outbox import status
from outbox.conf import conf
from outbox.errors import WrongSettings, counted
from outbox.models import Document
from outbox.relay.loop import Relay


class Command(BaseCommand):
    """The command of the outbox."""

    help = "Send recorded versions to Kafka, or say what waits"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The actions and their options."""
        actions = parser.add_subparsers(dest="action", required=True)
        relay = actions.add_parser("relay", help="send recorded versions to Kafka, until stopped")
        relay.add_argument(
            "--until-idle",
            type=float,
            metavar="SECONDS",
            help="end once nothing was sent for so long",
        )
        state = actions.add_parser("status", help="what waits, what failed, and who sends")
        state.add_argument("--json", action="store_true", help="as one JSON object")
        for action in (relay, state):
            action.add_argument("--database", help="alias of the database (default: the router's)")

    def handle(self, *_: Any, **options: Any) -> None:
        """Run the action."""
        alias = options["database"] or router.db_for_write(Document)
        if options["action"] == "status":
            self._say(alias, options["json"])
        else:
            self._relay(alias, options["until_idle"])

    def _relay(self, alias: str, until_idle: float | None) -> None:
        try:
            relay = Relay(conf(), alias, until_idle=until_idle)

            def stop(_: int, __: FrameType | None) -> None:
                relay.stop.set()

            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, stop)
            relay.run()
        except WrongSettings as error:
            raise CommandError(str(error)) from None

    def _say(self, alias: str, as_json: bool) -> None:
        found = status.read(alias)
        if as_json:
            self.stdout.write(json.dumps(asdict(found)))
            return
        self.stdout.write(
            f"{counted(found.versions, 'version')} of"
            f" {counted(found.documents, 'document waits', 'documents wait')}, the oldest for"
            f" {found.oldest_seconds:.1f} s; {counted(found.failed, 'document')} failed."
        )
        sent = counted(found.sent, "version was", "versions were")
        self.stdout.write(f"{sent} sent, in {counted(found.attempts, 'attempt')}.")
        for reason, times in found.failures.items():
            self.stdout.write(f"{counted(times, 'failure')}: {reason}")
        for name in sorted(set(found.owners.values()), key=lambda name: (name is None, name)):
            buckets = [number for number, owner in found.owners.items() if owner == name]
            self.stdout.write(
                f"{name or 'no relay'}: {len(buckets)} of {len(found.owners)} buckets"
            )
