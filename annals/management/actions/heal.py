"""The action of `annals gaps heal`: asks services, by Kafka, for versions that never arrived."""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connection
from django.utils import translation

from history.common.plain_text import to_one_line
from history.common.text_tables import pluralize
from history.completeness.gaps.run import get_latest_run
from ingest.kafka.client import WrongSettingError
from ingest.kafka.producer import KafkaProducer, ProducerError
from ingest.management.actions.consume import load_broker_settings, refuse_other_tables

REQUESTS_TOPIC: Final = "annals.gaps"
GAPS_PER_BATCH: Final = 500
# How long Kafka may take to confirm a batch of requests.
CONFIRM_MS: Final = 30_000

# Without versions in quarantine: they arrived, and the service would send the same bytes.
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
WHERE g.closed_at IS NULL AND g.id > %s AND g.entity = coalesce(%s, g.entity)
    AND (%s OR g.asked_at IS NULL OR g.asked_at < now() - interval '24 hours')
ORDER BY g.id LIMIT %s
"""
_MARK_ASKED = "UPDATE version_gap SET asked_at = now() WHERE id = ANY(%s)"


class VersionsRequest(NamedTuple):
    """A request for the versions `first` to `last` of a document."""

    kind: str
    id: str
    first: int
    last: int

    def to_message(self) -> bytes:
        """Return the value of the message. Its key is the id."""
        content = {"kind": self.kind, "id": self.id, "from": self.first, "to": self.last}
        return json.dumps(content, ensure_ascii=False).encode()


def _count_requests(counts: Counter[str], requests: Sequence[VersionsRequest]) -> None:
    """Add the requests for one gap to the counts of gaps, requests and versions."""
    versions = sum(request.last - request.first + 1 for request in requests)
    counts.update(gaps=1, requests=len(requests), versions=versions)


def run(command: BaseCommand, /, **options: Any) -> None:
    """Send the requests, or print them with --dry-run. Raises CommandError."""
    refuse_other_tables()
    as_json = bool(options["json"] or options["heal_json"])
    counts = Counter(gaps=0, requests=0, versions=0)
    with translation.override("en"):
        if options["dry_run"]:
            for _, requests in chain.from_iterable(_iterate_open_gaps(options)):
                _count_requests(counts, requests)
                for request in () if as_json else requests:
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
            command.stdout.write("annals gaps has never run: run it first.")
        else:
            command.stdout.write(
                "There is nothing to ask for: no gap is open, or all were asked for in the "
                "last 24 hours (--again asks for them, too)."
            )


def _send_requests(options: dict[str, Any], counts: Counter[str]) -> None:
    producer: KafkaProducer | None = None
    for gaps in _iterate_open_gaps(options):
        producer = producer or _create_producer()
        for _, requests in gaps:
            for request in requests:
                producer.send(REQUESTS_TOPIC, request.id.encode(), request.to_message())
        if producer.flush(CONFIRM_MS / 1000 + 1) or producer.failed:
            reason = producer.first_error or "the brokers do not answer"
            raise CommandError(
                f"Kafka did not take the requests: {reason}. Those for {counts['gaps']:,} gaps "
                "were sent; the next run asks for the others.",
                returncode=2,
            )
        # Marked after Kafka confirmed them: a killed run sends them again.
        with connection.cursor() as cursor:
            cursor.execute(_MARK_ASKED, [[id for id, _ in gaps]])
        for _, requests in gaps:
            _count_requests(counts, requests)


def _create_producer() -> KafkaProducer:
    """Create a producer, and the topic of the requests. Raises CommandError."""
    load_broker_settings()
    try:
        producer = KafkaProducer(
            {"client.id": "annals-heal", "message.timeout.ms": CONFIRM_MS, **settings.KAFKA}
        )
        producer.create_topics([REQUESTS_TOPIC], 1)
    except (ProducerError, WrongSettingError) as error:
        raise CommandError(str(error), returncode=2) from None
    return producer


def _iterate_open_gaps(
    options: dict[str, Any],
) -> Iterator[list[tuple[int, list[VersionsRequest]]]]:
    """Iterate over batches of open gaps: their ids and the requests for their versions."""
    after, remaining = 0, options["limit"] if options["limit"] is not None else sys.maxsize
    while remaining > 0:
        batch_size = min(GAPS_PER_BATCH, remaining)
        with connection.cursor() as cursor:
            cursor.execute(
                _SELECT_OPEN_GAPS, [after, options["entity"], options["again"], batch_size]
            )
            rows = cursor.fetchall()
        if not rows:
            return
        after = rows[-1][0]
        gaps = [
            (id, [VersionsRequest(kind, document, *piece) for piece in pieces])
            for id, kind, document, pieces in rows
            if pieces
        ]
        remaining -= len(gaps)
        if gaps:
            yield gaps
