"""`annals trace`: what became of one version or one message."""

from argparse import ArgumentParser
from typing import Any

from history.documents.record import MAX_VERSION, UNSTORED_SPAN
from history.kinds.entities import BY_NAME, BY_TOPIC
from history.management.action import ActionCommand
from history.management.numbers import make_whole_parser


class Command(ActionCommand):
    help = (
        "Print what became of a version (--entity, --id, --version) or of a message (--topic, "
        "--partition, --offset): stored, repeated, expired, quarantined, unread, lost, damaged or "
        "unknown."
    )
    action = "annals.management.actions.trace.run"

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--entity", choices=BY_NAME, metavar="KIND", help="the kind of entity")
        add("--id", help="the id of the entity")
        add(
            "--version",
            type=make_whole_parser(0, MAX_VERSION),
            metavar="N",
            help="the number of the version; "
            "without it: its messages in quarantine, whatever their version, newest first",
        )
        add("--topic", choices=BY_TOPIC, metavar="TOPIC", help="the topic of the message")
        add("--partition", type=make_whole_parser(0, 2**31 - 1), metavar="P", help="its partition")
        add(
            "--offset",
            type=make_whole_parser(0, 2**63 - 1 - UNSTORED_SPAN),
            metavar="O",
            help="its offset",
        )
        add(
            "--offline",
            action="store_true",
            help="do not ask Kafka; the ends of the partitions are those that the consumer "
            "recorded last",
        )
        add("--json", action="store_true", help="print JSON")

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> Any:
        """Create the parser. Its --version is that of a document and replaces Django's."""
        return super().create_parser(prog_name, subcommand, conflict_handler="resolve", **kwargs)
