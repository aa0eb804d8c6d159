"""`annals gaps` finds versions that never arrived; `gaps heal` asks the services for them."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connection
from django.utils import translation

from history.common.plain_text import to_one_line
from history.common.text_tables import build_table, pluralize, print_table
from history.kinds.entities import BY_NAME
from history.management.numbers import MAX_ID, make_whole_parser

if TYPE_CHECKING:
    from ingest.kafka.producer import KafkaProducer


REQUESTS_TOPIC: Final = "annals.gaps"
GAPS_PER_BATCH: Final = 500
# How long Kafka may take to confirm a batch of requests.
CONFIRM_MS: Final = 30_000

# Versions in quarantine are not asked for: they arrived, and the service would send the same bytes.
_SELECT_OPEN_GAPS = """
SELECT g.id, g.entity, g.document, array(
    SELECT array[lower(piece), upper(piece) - 1] FROM unnest(
        int8multirange(int8range(g.first, g.last, '[]')) - coalesce((
            SELECT range_agg(int8range(q.version, q.version, '[]')) FROM ingest_quarantine q
            WHERE q.entity = g.entity AND q.entity_id = g.document AND q.entity_id <> ''
                AND q.version BETWEEN g.first AND g.last AND q.status <> 'resolved'
        ), '{}')
    ) AS piece
)
FROM version_gap g
WHERE g.closed_at IS NULL AND g.id > %(after)s AND g.entity = coalesce(%(kind)s, g.entity)
    AND (%(again)s OR g.asked_at IS NULL OR g.asked_at < now() - interval '24 hours')
ORDER BY g.id LIMIT %(limit)s
"""
_MARK_ASKED = "UPDATE version_gap SET asked_at = now() WHERE id = ANY(%(ids)s)"


class VersionsRequest(NamedTuple):
    """A request for the versions `first` to `last` of a document."""

    kind: str
    id: str
    first: int
    last: int

    def to_message(self) -> bytes:
        """Return the value of the message for this request. Its key is the document's id."""
        content = {"kind": self.kind, "id": self.id, "from": self.first, "to": self.last}
        return json.dumps(content, ensure_ascii=False).encode()


class OpenGap(NamedTuple):
    """A row of the table version_gap, with the requests that ask services for missing versions."""

    id: int
    requests: list[VersionsRequest]


class Command(BaseCommand):
    help = (
        "Find versions that never arrived in the days that got rows since the last run, close the "
        "gaps whose versions came late, and print the sums by kind and service."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print JSON")
        commands = parser.add_subparsers(dest="command", metavar="COMMAND")
        heal = commands.add_parser(
            "heal",
            help="ask the services for the missing versions, by messages to the topic annals.gaps; "
            "exit 0: all requests were sent, 2: the command failed",
        )
        add = heal.add_argument
        add("--entity", choices=BY_NAME, metavar="KIND", help="only for this kind of entity")
        add(
            "--limit",
            type=make_whole_parser(1, MAX_ID),
            metavar="N",
            help="at most N gaps (default: all)",
        )
        add(
            "--again",
            action="store_true",
            help="also ask for versions that were asked for in the last 24 hours",
        )
        add("--dry-run", action="store_true", help="print the requests, but do not send them")
        add("--json", action="store_true", dest="heal_json", help="print JSON")

    def handle(self, *_: Any, **options: Any) -> None:
        if options["command"] == "heal":
            _heal_gaps(self, options)
        else:
            _find_gaps(self, as_json=options["json"])


def _find_gaps(command: BaseCommand, *, as_json: bool) -> None:
    """Find version gaps, store them in their table, and count them by kind and service."""
    from history.common import clock
    from history.completeness.gaps import read
    from history.completeness.gaps.run import find_gaps, get_latest_run
    from history.management.progress import show_progress
    from history.store.days.window import Window
    from history.store.distribution import is_distributed

    annals, out = settings.ANNALS, command.stdout
    window = Window.at(clock.now(), annals.retention_days, annals.ahead_days)
    with show_progress("days", None, sys.stderr) as advance:
        outcome = find_gaps(window, clock.now(), lambda: advance(1))
    sums, last_run = read.fetch_sums(), get_latest_run()
    quarantined = last_run.quarantined if last_run else 0
    gaps, versions = (
        sum(gap_sum.gaps for gap_sum in sums),
        sum(gap_sum.versions for gap_sum in sums),
    )
    if as_json:
        content = {
            **asdict(outcome),
            "seconds": round(outcome.seconds, 3),
            "gaps": gaps,
            "versions": versions,
            "quarantined": quarantined,
            "by": [gap_sum._asdict() for gap_sum in sums],
        }
        out.write(json.dumps(content))
        return
    if sums:
        names = ("entity", "service", "gaps", "versions missing")
        table = build_table(*names, right=names[2:])
        for gap_sum in sums:
            client = to_one_line(gap_sum.client_id)
            table.add_row(gap_sum.entity, client, f"{gap_sum.gaps:,}", f"{gap_sum.versions:,}")
        print_table(out, table)
    out.write(
        f"{pluralize(versions, 'version')} missing in {pluralize(gaps, 'gap')}, {quarantined:,} of "
        f"them in quarantine. {pluralize(outcome.days, 'day')} read, "
        f"{pluralize(outcome.documents, 'document')} looked at, "
        f"{pluralize(outcome.expired, 'gap')} expired, in {outcome.seconds:.1f} s."
    )
    if is_distributed(connection.connection):
        out.write(
            "The nodes of the cluster count new rows up to a minute late: the next run looks again "
            "at the rows of the last minute."
        )


def _heal_gaps(command: BaseCommand, options: dict[str, Any]) -> None:
    """Request the missing versions of open gaps. With --dry-run, only print the requests."""
    from history.completeness.gaps.run import get_latest_run
    from ingest.management.preconditions import refuse_incompatible_tables

    refuse_incompatible_tables()
    as_json = bool(options["json"] or options["heal_json"])
    counts = Counter(gaps=0, requests=0, versions=0)
    with translation.override("en"):
        if options["dry_run"]:
            for gap in chain.from_iterable(_iterate_open_gaps(options)):
                _count_requests(counts, gap.requests)
                for request in () if as_json else gap.requests:
                    line = f"{request.kind} {request.id} {request.first}-{request.last}"
                    command.stdout.write(to_one_line(line))
        else:
            _send_requests(options, counts)
        if as_json:
            command.stdout.write(json.dumps(counts))
        elif counts["requests"]:
            verb = "Would ask" if options["dry_run"] else "Asked"
            command.stdout.write(
                f"{verb} for {pluralize(counts['versions'], 'version')} of "
                f"{pluralize(counts['gaps'], 'gap')}, in the topic {REQUESTS_TOPIC}."
            )
        elif get_latest_run() is None:
            command.stdout.write("annals gaps has never run. Run it first.")
        else:
            command.stdout.write(
                "There is nothing to ask for: no gap is open, or all were asked for in the "
                "last 24 hours (--again asks for them, too)."
            )


def _send_requests(options: dict[str, Any], counts: Counter[str]) -> None:
    producer: KafkaProducer | None = None
    for gaps in _iterate_open_gaps(options):
        producer = producer or _create_producer()
        for gap in gaps:
            for request in gap.requests:
                producer.send(REQUESTS_TOPIC, request.id.encode(), request.to_message())
        if producer.flush(CONFIRM_MS / 1000 + 1) or producer.failed:
            reason = producer.first_error or "the brokers do not answer"
            raise CommandError(
                f"Kafka did not accept all requests: {reason}. The requests for "
                f"{counts['gaps']:,} gaps were sent; the next run sends the others.",
                returncode=2,
            )
        # Marked only after Kafka has confirmed the requests: a killed run sends them again.
        with connection.cursor() as cursor:
            cursor.execute(_MARK_ASKED, {"ids": [gap.id for gap in gaps]})
        for gap in gaps:
            _count_requests(counts, gap.requests)


def _count_requests(counts: Counter[str], requests: Sequence[VersionsRequest]) -> None:
    """Add one gap and its requests to the counts `gaps`, `requests` and `versions`."""
    versions = sum(request.last - request.first + 1 for request in requests)
    counts.update(gaps=1, requests=len(requests), versions=versions)


def _create_producer() -> KafkaProducer:
    """Create a producer, and the topic REQUESTS_TOPIC if it does not exist."""
    from ingest.kafka.client import WrongSettingError
    from ingest.kafka.producer import KafkaProducer, ProducerError
    from ingest.management.preconditions import load_broker_settings

    load_broker_settings()
    try:
        producer = KafkaProducer(
            {"client.id": "annals-heal", "message.timeout.ms": CONFIRM_MS, **settings.KAFKA}
        )
        producer.create_topics([REQUESTS_TOPIC], 1)
    except (ProducerError, WrongSettingError) as error:
        raise CommandError(str(error), returncode=2) from None
    return producer


def _iterate_open_gaps(options: dict[str, Any]) -> Iterator[list[OpenGap]]:
    """Iterate over batches of open gaps, in the order of the ids in version_gap."""
    after, remaining = 0, options["limit"] if options["limit"] is not None else sys.maxsize
    while remaining > 0:
        batch_size = min(GAPS_PER_BATCH, remaining)
        with connection.cursor() as cursor:
            cursor.execute(
                _SELECT_OPEN_GAPS,
                {
                    "after": after,
                    "kind": options["entity"],
                    "again": options["again"],
                    "limit": batch_size,
                },
            )
            rows = cursor.fetchall()
        if not rows:
            return
        after = rows[-1][0]
        gaps = [
            OpenGap(id, [VersionsRequest(kind, document, *piece) for piece in pieces])
            for id, kind, document, pieces in rows
            if pieces
        ]
        remaining -= len(gaps)
        if gaps:
            yield gaps
