"""The base of the commands `outbox` and `inbox`, which run processes and show the status."""

import json
import signal
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping
from threading import Event
from typing import Any, ClassVar, Protocol

from django.core.management import BaseCommand, CommandError
from django.db import connections, models, router

from outbox.conf import CommonConf
from outbox.database.sessions import apply_session_settings
from outbox.errors import WrongSettingsError


class Process(Protocol):
    """A long-running process. Set the event `stop` to make `run` return."""

    stop: Event

    def run(self) -> None:
        """Work until the event `stop` is set.

        Raises:
            WrongSettingsError: The settings are wrong. Raised before any work.
        """


class Command(BaseCommand):
    """The base of the commands `outbox` and `inbox`.

    Attributes:
        processes: Maps the name of a subcommand to a description and to the class of the process.
        conf: A function that loads the settings.
        status: A function that returns the status of the outbox or inbox in a database.
        model: By default, the command uses the database to which the router writes this model.
    """

    processes: ClassVar[Mapping[str, tuple[str, Callable[..., Process]]]]
    conf: ClassVar[Callable[[], CommonConf]]
    status: ClassVar[Callable[[str], Mapping[str, Any]]]
    model: ClassVar[type[models.Model]]

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the subcommands and their options."""
        actions = parser.add_subparsers(dest="action", required=True)
        for name, (description, _) in self.processes.items():
            process = actions.add_parser(name, help=f"{description}, until stopped")
            process.add_argument(
                "--until-idle",
                type=float,
                metavar="SECONDS",
                help="end after so many seconds without work",
            )
        status = actions.add_parser("status", help="what waits and what failed")
        status.add_argument("--json", action="store_true", help="as one JSON object")
        for action in actions.choices.values():
            action.add_argument("--database", help="alias of the database (default: by the router)")

    def handle(self, *_: Any, **options: Any) -> None:
        """Run the chosen subcommand."""
        alias = options["database"] or router.db_for_write(self.model)
        if options["action"] == "status":
            values = type(self).status(alias)
            self.stdout.write(
                json.dumps(values) if options["json"] else "\n".join(_format_lines(values))
            )
            return
        process_class = self.processes[options["action"]][1]
        try:
            apply_session_settings(alias)
            connections[alias].close()  # a connection that is already open lacks the settings
            process = process_class(type(self).conf(), alias, until_idle=options["until_idle"])
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: process.stop.set())
            process.run()
        except WrongSettingsError as error:
            raise CommandError(str(error)) from None


def _format_lines(values: Any, name: str = "") -> Iterator[str]:
    if not isinstance(values, Mapping):
        yield f"{name}: {values}"
        return
    for key, value in values.items():
        yield from _format_lines(value, f"{name} {key}".strip())
