"""What the commands of the outbox and of the inbox share: processes, and a status."""

import json
import signal
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping
from threading import Event
from typing import Any, ClassVar, Protocol

from django.core.management import BaseCommand, CommandError
from django.db import connections, models, router

from outbox.conf import Common
from outbox.database import settle
from outbox.errors import WrongSettings


class Process(Protocol):
    """stop: set it to have run() return."""

    stop: Event

    def run(self) -> None:
        """Raises WrongSettings."""


class Command(BaseCommand):
    """processes: by action, what it does, and its class. conf: its settings. model: has the
    database by default."""

    processes: ClassVar[Mapping[str, tuple[str, Callable[..., Process]]]]
    conf: ClassVar[Callable[[], Common]]
    status: ClassVar[Callable[[str], Mapping[str, Any]]]
    model: ClassVar[type[models.Model]]

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The actions and their options."""
        actions = parser.add_subparsers(dest="action", required=True)
        for name, (does, _) in self.processes.items():
            process = actions.add_parser(name, help=f"{does}, until stopped")
            process.add_argument(
                "--until-idle", type=float, metavar="SECONDS",
                help="end once there was nothing to do for so long",
            )  # fmt: skip
        status = actions.add_parser("status", help="what waits and what failed")
        status.add_argument("--json", action="store_true", help="as one JSON object")
        for action in actions.choices.values():
            action.add_argument("--database", help="alias of the database (default: the router's)")

    def handle(self, *_: Any, **options: Any) -> None:
        """Run the action."""
        alias = options["database"] or router.db_for_write(self.model)
        if options["action"] == "status":
            found = type(self).status(alias)
            self.stdout.write(json.dumps(found) if options["json"] else "\n".join(_lines(found)))
            return
        make = self.processes[options["action"]][1]
        try:
            settle(alias)
            connections[alias].close()  # one that is open already has no such settings
            process = make(type(self).conf(), alias, until_idle=options["until_idle"])
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: process.stop.set())
            process.run()
        except WrongSettings as error:
            raise CommandError(str(error)) from None


def _lines(found: Any, name: str = "") -> Iterator[str]:
    if not isinstance(found, Mapping):
        yield f"{name}: {found}"
        return
    for key, each in found.items():
        yield from _lines(each, f"{name} {key}".strip())
