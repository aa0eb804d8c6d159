"""`annals breakglass NAME`: a local superuser for the day on which no provider answers."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from history.late import late


class Command(BaseCommand):
    help = (
        "Print a link that logs a local superuser in, for the day on which no identity provider "
        "answers. It works once, for ten minutes. The login is logged and alerted."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", metavar="NAME", help="the login, for example breakglass")
        parser.add_argument("--remove", action="store_true", help="switch this login off instead")

    def handle(self, *_: Any, **options: Any) -> None:
        late("annals.access.management.actions.breakglass.run")(self, **options)
