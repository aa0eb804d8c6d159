"""`annals quarantine`: lists, shows, retries, discards bad messages; resumes halted topics."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from history.management.numbers import MAX_ID, make_whole_parser
from history.store.quarantine_reasons import REASONS

ID = make_whole_parser(0, MAX_ID)
IDS = "id, from `quarantine list --ids`"


class Command(BaseCommand):
    help = "List, show, retry and discard quarantined messages; resume halted topics."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
        add = commands.add_parser("list", help="list messages by topic and reason").add_argument
        add("--all", action="store_true", help="include resolved and discarded messages")
        add("--ids", action="store_true", help="list each message")
        add("--json", action="store_true", help="print JSON")
        _add_filters(add)
        show = commands.add_parser("show", help="show one message")
        show.add_argument("id", type=ID, metavar="ID", help=IDS)
        show.add_argument("--json", action="store_true", help="print JSON")
        show.add_argument("--raw", action="store_true", help="print only the bytes of the value")
        retry = commands.add_parser("retry", help="retry messages; without ids: those that are due")
        retry.add_argument("ids", nargs="*", type=ID, metavar="ID", help=IDS)
        retry.add_argument("--now", action="store_true", help="also messages that are not due yet")
        _add_filters(retry.add_argument)
        discard = commands.add_parser("discard", help="settle messages without storing them")
        discard.add_argument("ids", nargs="*", type=ID, metavar="ID", help=IDS)
        discard.add_argument(
            "--why", required=True, help="the reason; it is kept with each message"
        )
        _add_filters(discard.add_argument)
        resume = commands.add_parser("resume", help="resume a halted topic, with its bad messages")
        resume.add_argument("topic", help="the topic")
        resume.add_argument(
            "--partition", type=make_whole_parser(0, 2**31 - 1), help="only this partition"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        from ingest.management.actions.quarantine import QuarantineRun

        QuarantineRun(self).handle(**options)


def _add_filters(add: Any) -> None:
    add("--topic", help="only this topic")
    add("--reason", choices=REASONS, metavar="REASON", help="only this reason")
