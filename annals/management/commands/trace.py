"""`annals trace`: what became of one version or one message."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import translation

from history.common.plain_text import to_one_line
from history.documents.record import ID_LENGTH, MAX_VERSION, UNSTORED_SPAN
from history.kinds.entities import BY_NAME, BY_TOPIC
from history.management.numbers import make_whole_parser

if TYPE_CHECKING:
    from history.completeness.trace import BrokerBounds, Fate, MessagePosition


VERSION_OPTIONS = ("entity", "id", "version")
MESSAGE_OPTIONS = ("topic", "partition", "offset")


class Command(BaseCommand):
    help = (
        "Print what became of a version (--entity, --id, --version) or of a message (--topic, "
        "--partition, --offset): stored, repeated, expired, quarantined, unread, lost, damaged or "
        "unknown."
    )
    requires_system_checks: list[str] = []

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
        """Create a parser in which --version is the number of a version.

        It replaces Django's option --version, which would print the version of Django.
        """
        return super().create_parser(prog_name, subcommand, conflict_handler="resolve", **kwargs)

    def handle(self, *_: Any, **options: Any) -> None:
        """Print the fate of a version or message, or of a document's quarantined messages."""
        groups = [
            names
            for names in (VERSION_OPTIONS, MESSAGE_OPTIONS)
            if any(options[name] is not None for name in names)
        ]
        missing = [name for names in groups for name in names if options[name] is None]
        if len(groups) != 1 or set(missing) - {"version"}:
            raise CommandError(
                "To trace a version, give --entity, --id and --version. To trace the quarantined "
                "messages of a document, give --entity and --id. To trace a message, give --topic, "
                "--partition and --offset."
            )
        of_version = groups[0] is VERSION_OPTIONS
        fates = _trace_version(options) if of_version else [_trace_message(self, options)]
        with translation.override("en"):
            for fate in fates:
                if options["json"]:
                    self.stdout.write(json.dumps(_to_object(fate)))
                else:
                    _print_fate(self, fate)


def _trace_version(options: dict[str, Any]) -> list[Fate]:
    from annals.access.journal.actions import AccessAction
    from annals.access.journal.write import record_operator_access
    from history import timeline
    from history.completeness import trace
    from history.store import quarantine_queries

    entity, id, number = BY_NAME[options["entity"]], options["id"], options["version"]
    if not 0 < len(id) <= ID_LENGTH or "\0" in id:
        raise CommandError(f"--id must have 1 to {ID_LENGTH} characters.")
    record_operator_access(
        AccessAction.VERSION,
        "trace quarantine" if number is None else f"trace version {number}",
        entity=entity.name,
        entity_id=id,
        application=id if entity.root else "",
    )
    if number is not None:
        return [trace.trace_version(timeline.make_host_reader(), entity, id, number)]
    fates = [
        trace.make_quarantined_fate(message)
        for message in quarantine_queries.find_by_document(entity, id)
    ]
    if not fates:
        raise CommandError(
            "No message of this document is in quarantine. Give --version to trace one version."
        )
    return fates


def _trace_message(command: BaseCommand, options: dict[str, Any]) -> Fate:
    from annals.access.journal.actions import AccessAction
    from annals.access.journal.write import record_operator_access
    from history.completeness import trace
    from history.completeness.trace import MessagePosition

    message = MessagePosition(*(options[name] for name in MESSAGE_OPTIONS))
    record_operator_access(
        AccessAction.VERSION, f"trace {message.topic}[{message.partition}]@{message.offset}"
    )
    bounds = None if options["offline"] else _fetch_bounds(command, message)
    return trace.trace_message(message, bounds)


def _fetch_bounds(command: BaseCommand, message: MessagePosition) -> BrokerBounds | None:
    """Return which offsets the brokers have in the topic partition of a message.

    Returns None, and prints why, if no broker answers or the settings name no broker.
    """
    from history.completeness.trace import BrokerBounds
    from ingest.kafka.brokers import Brokers
    from ingest.kafka.client import UnreachableError
    from ingest.kafka.source import peek_messages
    from ingest.management.preconditions import load_broker_settings

    partition = (message.topic, message.partition)
    try:
        bounds = Brokers(*load_broker_settings()).fetch_bounds([partition])
        if not bounds:
            return BrokerBounds(0, 0)
        [(source, (low, end))] = bounds.items()
        # The embedded broker counts its last batch as one message, so `end` can be too low.
        if message.offset >= end:
            peeked_messages = peek_messages(*load_broker_settings(), partition, message.offset, 1)
            if any(peeked.offset == message.offset for peeked in peeked_messages):
                end = message.offset + 1
    except (UnreachableError, CommandError) as error:
        command.stderr.write(f"{error}. The end of the partition is taken from the ledger.")
        return None
    return BrokerBounds(low, end, source.topic_id)


def _print_fate(command: BaseCommand, fate: Fate) -> None:
    from history.completeness import trace

    command.stdout.write(to_one_line(f"{fate.state.value}: {' '.join(trace.describe_fate(fate))}"))
    for name, value in _to_object(fate).items():
        if value is not None and name not in ("state", "why", "mayBe", "certain"):
            command.stdout.write(f"  {name}: {to_one_line(str(value))}")


def _to_object(fate: Fate) -> dict[str, Any]:
    """Return a fate as an object for JSON: the fields of the API's `GET trace`, and `detail`.

    `detail` says what is wrong with a message in quarantine. It is None if there is no detail.
    """
    import msgspec

    from history.completeness import trace

    description = trace.make_description(fate, datetime.isoformat)
    return {**msgspec.to_builtins(description), "detail": fate.detail or None}
