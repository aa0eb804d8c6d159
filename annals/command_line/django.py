"""Django's way to a command, with our refusals of wrong words."""

from __future__ import annotations

import signal
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any, Final

from django.conf import settings
from django.core.management import BaseCommand, ManagementUtility, get_commands
from django.core.management.base import CommandError, SystemCheckError

from annals.command_line import listening, refusal
from annals.command_line.ending import Refused

# Of Django.
PRINTS_SECRETS: Final = {
    "diffsettings": "diffsettings would print passwords and keys, so it is not part of Annals. "
    "docs/settings.md has all settings."
}


class Commands(ManagementUtility):
    """Runs a command of any installed app. only_check: ends where the command would run."""

    def __init__(self, argv: Sequence[str], only_check: bool = False) -> None:
        super().__init__(list(argv))
        self.only_check = only_check

    def fetch_command(self, subcommand: str) -> BaseCommand:
        """Ends the process with a sentence if there is no such command, or its words are wrong."""
        known = get_commands()
        if subcommand in PRINTS_SECRETS:
            refusal.end(self.prog_name, PRINTS_SECRETS[subcommand])
        if subcommand not in known:
            _ = settings.INSTALLED_APPS  # raises what is wrong with the settings, if they are
            refusal.end(self.prog_name, refusal.command(self.prog_name, subcommand, known))
        command = super().fetch_command(subcommand)
        if subcommand == self.argv[1]:
            parser: ArgumentParser = command.create_parser(self.prog_name, subcommand)
            refusal.check(f"{self.prog_name} {subcommand}", parser, self.argv[2:])
            if subcommand == "runserver" and not listening.is_again():
                self._refuse_address(parser)
            if self.only_check:
                sys.exit(0)
            if subcommand == "runserver":
                _end_at_hangup()
            _refuse_in_words(command)
        return command

    def _refuse_address(self, parser: ArgumentParser) -> None:
        """End the process with a sentence if `runserver` cannot listen where it is asked to."""
        given = parser.parse_args(self.argv[2:])
        if text := listening.fault(given.addrport, given.use_ipv6):
            refusal.end(f"{self.prog_name} runserver", text)


def _end_at_hangup() -> None:
    """End at SIGHUP as at SIGTERM, unless it is ignored, as under nohup: the process of Django that
    starts the server again for changes takes the server with it then. Without this it left it."""
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: sys.exit(0))


def _refuse_in_words(command: BaseCommand) -> None:
    """Let what a command refuses reach annals.command_line.ending."""
    execute = command.execute

    def wrapped(*arguments: Any, **options: Any) -> str | None:
        try:
            return execute(*arguments, **options)
        except SystemCheckError:
            raise  # it has a form of its own
        except CommandError as error:
            raise Refused(str(error), error.returncode) from error

    command.execute = wrapped  # type: ignore[method-assign]
