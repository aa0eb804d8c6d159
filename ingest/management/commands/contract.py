"""`annals contract`: prints what a message must be, for programs."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from history.entities import BY_NAME


class Command(BaseCommand):
    help = "Print what a message must be, with the kinds of entities that are declared."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
        schema = commands.add_parser("schema", help="the JSON Schema of a message")
        schema.add_argument(
            "--entity",
            choices=BY_NAME,
            metavar="KIND",
            help="only for the messages of this kind (default: for all, with each kind in $defs)",
        )
        commands.add_parser("asyncapi", help="the AsyncAPI document of the topics")

    def handle(self, *_: Any, **options: Any) -> None:
        from ingest import contract

        if options["command"] == "asyncapi":
            found = contract.document()
        elif options["entity"]:
            entity = BY_NAME[options["entity"]]
            if entity.envelope is not None:
                self.stderr.write(
                    f"{entity.name} declares an envelope: its messages look otherwise. This is the "
                    "contract's own envelope. See docs/kinds.md."
                )
            found = contract.of_entity(entity)
        else:
            found = contract.of_all()
        self.stdout.write(contract.text(found), ending="")
