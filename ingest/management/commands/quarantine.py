"""`annals quarantine`: lists, shows, retries, discards bad messages; resumes halted topics."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError

from history.common.plain_text import to_one_line
from history.common.text_tables import build_table, print_table
from history.management.numbers import MAX_ID, make_whole_parser
from history.store.quarantine_reasons import REASONS

if TYPE_CHECKING:
    from ingest.models import Quarantined
    from ingest.quarantine.messages import MessageSelection


parse_id = make_whole_parser(0, MAX_ID)
ID_HELP = "id, from `quarantine list --ids`"
FIRST_REASON_FIELDS = ("first_reason", "first_detail")
SHOWN_FIELDS = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "reason",
    "detail",
    *FIRST_REASON_FIELDS,
    "status",
    "attempts",
    "first_seen",
    "next_attempt",
    "settled_at",
    "outcome",
)
LISTED_FIELDS = (
    "id",
    "topic",
    "partition",
    "offset",
    "reason",
    "first_reason",
    "status",
    "attempts",
    "next_attempt",
    "detail",
)
NEWLINE_AND_TAB = "\n\t"
_RECORD_RUN = """
INSERT INTO ingest_job_run (name, started_at, outcome) VALUES (%(name)s, %(began)s, %(outcome)s)
ON CONFLICT (name) DO UPDATE SET started_at = excluded.started_at, outcome = excluded.outcome
"""


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
        show.add_argument("id", type=parse_id, metavar="ID", help=ID_HELP)
        show.add_argument("--json", action="store_true", help="print JSON")
        show.add_argument("--raw", action="store_true", help="print only the bytes of the value")
        retry = commands.add_parser("retry", help="retry messages; without ids, all that are due")
        retry.add_argument("ids", nargs="*", type=parse_id, metavar="ID", help=ID_HELP)
        retry.add_argument("--now", action="store_true", help="also messages that are not due yet")
        _add_filters(retry.add_argument)
        discard = commands.add_parser("discard", help="settle messages without storing them")
        discard.add_argument("ids", nargs="*", type=parse_id, metavar="ID", help=ID_HELP)
        discard.add_argument(
            "--why", required=True, help="the reason; it is kept with each message"
        )
        _add_filters(discard.add_argument)
        resume = commands.add_parser(
            "resume", help="read a halted topic again; its bad messages go to quarantine"
        )
        resume.add_argument("topic", help="the topic")
        resume.add_argument(
            "--partition", type=make_whole_parser(0, 2**31 - 1), help="only this partition"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        from ingest.management.argument_checks import refuse_missing_ids, refuse_unknown_topic

        refuse_unknown_topic(options.get("topic"))
        if options["command"] in ("retry", "discard"):
            refuse_missing_ids(options["ids"])
        getattr(self, f"_{options['command']}")(options)

    def _list(self, options: dict[str, Any]) -> None:
        from django.db.models import Count, Max, Min

        from ingest.models import Ledger, Quarantined
        from ingest.quarantine.messages import UNSETTLED

        rows = Quarantined.objects.filter(**_get_conditions(options))
        if not options["all"]:
            rows = rows.filter(status__in=UNSETTLED)
        if options["ids"]:
            self._list_messages(rows, options)
            return
        groups = list(
            rows.values("topic", "reason", "status")
            .annotate(count=Count("id"), first=Min("first_seen"), last=Max("first_seen"))
            .order_by("topic", "reason", "status")
        )
        if options["json"]:
            self.stdout.write(json.dumps(groups, default=str))
            return
        if not groups:
            self.stdout.write(_explain_nothing(options))
        else:
            names = ("topic", "reason", "status", "messages", "first seen", "last seen")
            table = build_table(*names, right=("messages",))
            for group in groups:
                seen = (f"{group[name]:%Y-%m-%d %H:%M:%S}" for name in ("first", "last"))
                count = f"{group['count']:,}"
                topic = to_one_line(group["topic"])
                table.add_row(topic, group["reason"], group["status"], count, *seen)
            print_table(self.stdout, table)
        for row in Ledger.objects.filter(halted_at__isnull=False).order_by("topic", "partition"):
            self.stdout.write(
                f"HALTED {row.topic}[{row.partition}] since {row.halted_at:%Y-%m-%d %H:%M:%S} UTC: "
                f"{row.halted_why}. It resumes when good messages arrive, or with: "
                f"annals quarantine resume {row.topic}"
            )

    def _list_messages(self, rows: Any, options: dict[str, Any]) -> None:
        listed_rows = rows.order_by("id").values(*LISTED_FIELDS)
        if options["json"]:
            self.stdout.write(json.dumps(list(listed_rows), default=str))
            return
        if not listed_rows:
            self.stdout.write(_explain_nothing(options))
            return
        table = build_table(*(name.replace("_", " ") for name in LISTED_FIELDS))
        for row in listed_rows:
            texts = (
                "" if row[name] is None else to_one_line(str(row[name])) for name in LISTED_FIELDS
            )
            table.add_row(*texts)
        print_table(self.stdout, table)

    def _show(self, options: dict[str, Any]) -> None:
        from ingest.models import Quarantined
        from ingest.store import rejects

        row = Quarantined.objects.filter(id=options["id"]).first()
        if row is None:
            raise CommandError(f"there is no message {options['id']} in quarantine.")
        value = None if row.value is None else bytes(row.value)
        if options["raw"]:
            sys.stdout.buffer.write(value or b"")
            return
        if options["json"]:
            self.stdout.write(json.dumps(_as_object(row), default=str))
            return
        for name in SHOWN_FIELDS:
            value_of_field = getattr(row, name)
            if name in FIRST_REASON_FIELDS and not row.first_reason:
                continue
            text = "none" if value_of_field in (None, "") else to_one_line(str(value_of_field))
            self.stdout.write(f"{name.replace('_', ' ')}: {text}")
        self.stdout.write(f"key: {_format_bytes(row.key)}")
        for name, content in rejects.headers_from_json(row.headers):
            self.stdout.write(f"header {to_one_line(name)}: {_format_bytes(content)}")
        self.stdout.write(
            f"value ({len(value or b'')} bytes): {_format_bytes(value, NEWLINE_AND_TAB)}"
        )

    def _retry(self, options: dict[str, Any]) -> None:
        from history.common import clock
        from history.management.progress import show_progress
        from ingest.models import JobRun
        from ingest.quarantine import requests
        from ingest.quarantine.messages import OPEN, retry_messages
        from ingest.store.missing_days import get_safe_window
        from ingest.store.session import open_connection

        selection = _make_selection(options)
        if not options["ids"]:
            selection = replace(selection, due_only=not options["now"], statuses=OPEN)
        outcomes: Counter[str] = Counter()
        began = clock.now()
        with (
            open_connection("annals-retry") as connection,
            show_progress("retry", None, sys.stderr) as advance,
        ):
            window = partial(get_safe_window, connection)
            if not options["ids"]:
                outcomes += requests.execute_requests(connection, window)
            for batch_outcomes in retry_messages(connection, selection, window):
                outcomes += batch_outcomes
                advance(batch_outcomes.total())
            if not options["ids"]:
                outcome = ", ".join(f"{name} {count}" for name, count in outcomes.most_common())
                connection.execute(
                    _RECORD_RUN, {"name": JobRun.RETRY, "began": began, "outcome": outcome[:200]}
                )
        if not outcomes:
            self.stdout.write(
                "None of these messages is unsettled."
                if options["ids"]
                else "No message is due (--now also retries messages that are not due yet)."
            )
        for name, count in outcomes.most_common():
            self.stdout.write(f"{count:,} {name}")

    def _discard(self, options: dict[str, Any]) -> None:
        from ingest.quarantine import messages
        from ingest.store.session import open_connection

        if not (options["ids"] or options["topic"] or options["reason"]):
            raise CommandError("Select messages: give ids, --topic or --reason.")
        if not options["why"].strip():
            raise CommandError("--why must give the reason: it is kept with each message.")
        with open_connection("annals-discard") as connection:
            count = messages.discard_messages(connection, _make_selection(options), options["why"])
        self.stdout.write(f"{count:,} discarded")

    def _resume(self, options: dict[str, Any]) -> None:
        from django.db.models.functions import Greatest

        from ingest.models import Ledger

        rows = Ledger.objects.filter(topic=options["topic"], halted_at__isnull=False)
        if options["partition"] is not None:
            rows = rows.filter(partition=options["partition"])
        # Up to the current end of the topic, or to the halt if the end is not known. For later
        # messages the limits apply again.
        count = rows.update(resume_until=Greatest("high_watermark", "next_offset") + 1)
        if not count:
            raise CommandError(f"no partition of {options['topic']} is halted.")
        self.stdout.write(
            f"{count} partition(s) resume within seconds. Bad messages that are already in the "
            "topic go to quarantine, and do not halt a partition again."
        )


def _add_filters(add: Any) -> None:
    add("--topic", help="only this topic")
    add("--reason", choices=REASONS, metavar="REASON", help="only this reason")


def _get_conditions(options: dict[str, Any]) -> dict[str, str]:
    names = ("topic", "reason")
    return {name: options[name] for name in names if options.get(name) is not None}


def _make_selection(options: dict[str, Any]) -> MessageSelection:
    """Return the selection of unsettled messages that the options name."""
    from ingest.quarantine.messages import UNSETTLED, MessageSelection

    ids = tuple(options["ids"]) or None
    return MessageSelection(ids, options["topic"], options["reason"], statuses=UNSETTLED)


def _explain_nothing(options: dict[str, Any]) -> str:
    conditions = " and ".join(f"{name} {text}" for name, text in _get_conditions(options).items())
    if conditions:
        return f"The quarantine has no message of {conditions}."
    if options.get("all"):
        return "The quarantine is empty."
    return "The quarantine has no unsettled message (list --all also shows settled ones)."


def _as_object(row: Quarantined) -> dict[str, Any]:
    """Return a message as an object for JSON. Bytes that are not UTF-8 are escaped."""
    from ingest.store import rejects

    return {
        **{name: getattr(row, name) for name in SHOWN_FIELDS},
        "key": _decode_text(row.key),
        "headers": [
            {"name": name, "value": _decode_text(content)}
            for name, content in rejects.headers_from_json(row.headers)
        ],
        "value": _decode_text(row.value),
        "value_bytes": len(row.value or b""),
    }


def _decode_text(value: Any) -> str | None:
    return None if value is None else bytes(value).decode("utf-8", "backslashreplace")


def _format_bytes(value: Any, kept_characters: str = "") -> str:
    """Return bytes as text, with all control characters escaped except `kept_characters`."""
    text = _decode_text(value)
    return "(none)" if text is None else to_one_line(text, kept_characters)
