"""`annals completion`: the completion of commands in a shell."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from history.late import late


class Command(BaseCommand):
    help = (
        "Print the script that completes commands, actions and options of annals in a shell: "
        "source it, or put it where the shell looks for completions."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("shell", choices=["bash", "zsh", "fish"], help="the shell")

    def handle(self, *_: Any, shell: str, **__: Any) -> None:
        late("annals.management.actions.completion.run")(self, shell)
