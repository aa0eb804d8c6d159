"""`annals grants`: the database rights, limits and logins of the web and of the consumer."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand


class Command(BaseCommand):
    help = (
        "Print or apply the SQL that gives the web and the consumer their database rights, and the "
        "logins their limits."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--apply", action="store_true", help="run the SQL, as the owner of the tables"
        )
        parser.add_argument(
            "--login",
            nargs=3,
            action="append",
            default=[],
            metavar=("ROLE", "NAME", "FILE"),
            help="with --apply: create the login NAME of the role `web` or `consumer`, or change "
            "its password; FILE has the password. Can be repeated. Needs CREATEROLE",
        )

    def handle(self, *_: Any, **options: Any) -> None:
        from annals.management.actions.grants import run

        run(self, **options)
