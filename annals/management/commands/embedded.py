"""`annals embedded`: shows, starts and stops the embedded servers."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from history.late import late


class Command(BaseCommand):
    help = "Show, start or stop the embedded PostgreSQL and the embedded broker."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "action", choices=["status", "start", "stop"], help="what to do with both servers"
        )

        parser.add_argument("--json", action="store_true", help="print JSON, after it is done")

    def handle(self, *_: Any, **options: Any) -> None:
        late("annals.management.actions.embedded.run")(self, **options)
