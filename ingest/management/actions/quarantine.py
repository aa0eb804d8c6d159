"""What `annals quarantine` does."""

import json
import sys
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db.models import Count, F, Max, Min

from history.base import clock
from history.base.plain_text import one_line
from history.base.table import columns, print_table
from history.management.progress import progress
from ingest.management.known import refuse_missing_ids, refuse_unknown_topic
from ingest.models import JobRun, Ledger, Quarantined
from ingest.quarantine import messages, requests
from ingest.quarantine.messages import OPEN, UNSETTLED, Selection, retry
from ingest.store import rejects
from ingest.store.missing_days import get_safe_window
from ingest.store.session import open_connection

LINES = "\n\t"

PLACE = ("topic", "partition", "offset")

FIRST = ("first_reason", "first_detail")
SHOWN = (
    *(*PLACE, "timestamp", "reason", "detail", *FIRST, "status", "attempts"),
    *("first_seen", "next_attempt", "settled_at", "outcome"),
)
LISTED = (
    *("id", *PLACE, "reason", "first_reason", "status", "attempts", "next_attempt", "detail"),
)


_RAN = f"""
INSERT INTO ingest_job_run (name, started_at, outcome) VALUES ('{JobRun.RETRY}', %s, %s)
ON CONFLICT (name) DO UPDATE SET started_at = excluded.started_at, outcome = excluded.outcome
"""  # noqa: S608 - a constant


class QuarantineRun:
    """The action of one call of the command."""

    def __init__(self, command: BaseCommand) -> None:
        self.stdout, self.stderr = command.stdout, command.stderr

    def handle(self, **options: Any) -> None:
        refuse_unknown_topic(options.get("topic"))
        if options["command"] in ("retry", "discard"):
            refuse_missing_ids(options["ids"])
        getattr(self, f"_{options['command']}")(options)

    def _list(self, options: dict[str, Any]) -> None:
        rows = Quarantined.objects.filter(**_asked(options))
        if not options["all"]:
            rows = rows.filter(status__in=UNSETTLED)
        if options["ids"]:
            self._list_each(rows, options)
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
            self.stdout.write(_nothing(options))
        else:
            names = ("topic", "reason", "status", "messages", "first seen", "last seen")
            table = columns(*names, right=("messages",))
            for group in groups:
                seen = (f"{group[name]:%Y-%m-%d %H:%M:%S}" for name in ("first", "last"))
                count = f"{group['count']:,}"
                topic = one_line(group["topic"])
                table.add_row(topic, group["reason"], group["status"], count, *seen)
            print_table(self.stdout, table)
        for row in Ledger.objects.filter(halted_at__isnull=False).order_by("topic", "partition"):
            self.stdout.write(
                f"HALTED {row.topic}[{row.partition}] since {row.halted_at:%Y-%m-%d %H:%M:%S} UTC: "
                f"{row.halted_why}. It resumes when good messages arrive, or with: "
                f"annals quarantine resume {row.topic}"
            )

    def _list_each(self, rows: Any, options: dict[str, Any]) -> None:
        found = rows.order_by("id").values(*LISTED)
        if options["json"]:
            self.stdout.write(json.dumps(list(found), default=str))
            return
        if not found:
            self.stdout.write(_nothing(options))
            return
        table = columns(*(name.replace("_", " ") for name in LISTED))
        for row in found:
            texts = ("" if row[name] is None else one_line(str(row[name])) for name in LISTED)
            table.add_row(*texts)
        print_table(self.stdout, table)

    def _show(self, options: dict[str, Any]) -> None:
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
        for name in SHOWN:
            found = getattr(row, name)
            if name in FIRST and not row.first_reason:
                continue
            text = "none" if found in (None, "") else one_line(str(found))
            self.stdout.write(f"{name.replace('_', ' ')}: {text}")
        self.stdout.write(f"key: {_readable(row.key)}")
        for name, content in rejects.headers_from_json(row.headers):
            self.stdout.write(f"header {one_line(name)}: {_readable(content)}")
        self.stdout.write(f"value ({len(value or b'')} bytes): {_readable(value, LINES)}")

    def _retry(self, options: dict[str, Any]) -> None:
        selection = _selection(options)
        if not options["ids"]:
            selection = replace(selection, due_only=not options["now"], statuses=OPEN)
        became: Counter[str] = Counter()
        began = clock.now()
        with (
            open_connection("annals-retry") as connection,
            progress("retry", None, sys.stderr) as advance,
        ):
            window = partial(get_safe_window, connection)
            if not options["ids"]:
                became += requests.carry_out(connection, window)
            for few in retry(connection, selection, window):
                became += few
                advance(few.total())
            if not options["ids"]:
                outcome = ", ".join(f"{name} {count}" for name, count in became.most_common())
                connection.execute(_RAN, (began, outcome[:200]))
        if not became:
            self.stdout.write(
                "No message is due (--now also retries messages that are not due yet)."
            )
        for name, count in became.most_common():
            self.stdout.write(f"{count:,} {name}")

    def _discard(self, options: dict[str, Any]) -> None:
        if not (options["ids"] or options["topic"] or options["reason"]):
            raise CommandError("Select messages: give ids, --topic or --reason.")
        if not options["why"].strip():
            raise CommandError("--why must say why: it is kept with each message.")
        with open_connection("annals-discard") as connection:
            count = messages.discard(connection, _selection(options), options["why"])
        self.stdout.write(f"{count:,} discarded")

    def _resume(self, options: dict[str, Any]) -> None:
        rows = Ledger.objects.filter(topic=options["topic"], halted_at__isnull=False)
        if options["partition"] is not None:
            rows = rows.filter(partition=options["partition"])
        # Up to the current end of the topic: the limits apply again to later messages.
        count = rows.update(resume_until=F("high_watermark") + 1)
        if not count:
            raise CommandError(f"no partition of {options['topic']} is halted.")
        self.stdout.write(
            f"{count} partition(s) resume within seconds. Bad messages that are in the topic now "
            "go to quarantine."
        )


def _asked(options: dict[str, Any]) -> dict[str, str]:
    names = ("topic", "reason")
    return {name: options[name] for name in names if options.get(name) is not None}


def _selection(options: dict[str, Any]) -> Selection:
    """The unsettled messages that are asked for."""
    ids = tuple(options["ids"]) or None
    return Selection(ids, options["topic"], options["reason"], statuses=UNSETTLED)


def _nothing(options: dict[str, Any]) -> str:
    asked = " and ".join(f"{name} {text}" for name, text in _asked(options).items())
    return f"The quarantine has no message of {asked}." if asked else "The quarantine is empty."


def _as_object(row: Quarantined) -> dict[str, Any]:
    """A message as JSON values. Texts in it are as they came; bytes that are no text, escaped."""
    return {
        **{name: getattr(row, name) for name in SHOWN},
        "key": _text(row.key),
        "headers": [
            {"name": name, "value": _text(content)}
            for name, content in rejects.headers_from_json(row.headers)
        ],
        "value": _text(row.value),
        "value_bytes": len(row.value or b""),
    }


def _text(value: Any) -> str | None:
    return None if value is None else bytes(value).decode("utf-8", "backslashreplace")


def _readable(value: Any, keep: str = "") -> str:
    """As _text, with escapes for control characters but those to keep."""
    text = _text(value)
    return "(none)" if text is None else one_line(text, keep)
