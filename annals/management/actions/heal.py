"""What `annals gaps heal` does: asks the services, in Kafka, for versions that never arrived."""

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

from history.base.plain_text import one_line
from history.base.table import counted
from history.gaps.run import latest
from ingest.management.actions.consume import brokers, refuse_other_tables
from ingest.source.client import WrongSettingError
from ingest.source.producer import KafkaProducer, ProducerError

TOPIC: Final = "annals.gaps"
GAPS_AT_ONCE: Final = 500
# For which Kafka may take to confirm what was asked at once.
CONFIRM_MS: Final = 30_000

# What is in quarantine came: asking brings the same bytes.
_OPEN = """
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
_ASKED = "UPDATE version_gap SET asked_at = now() WHERE id = ANY(%s)"


class Request(NamedTuple):
    """Versions first to last of one document."""

    kind: str
    id: str
    first: int
    last: int

    def value(self) -> bytes:
        """The message that asks for them. Its key is the id."""
        found = {"kind": self.kind, "id": self.id, "from": self.first, "to": self.last}
        return json.dumps(found, ensure_ascii=False).encode()


def _count(asked: Counter[str], requests: Sequence[Request]) -> None:
    """Add the requests for one gap to the sums of gaps, requests and versions."""
    versions = sum(each.last - each.first + 1 for each in requests)
    asked.update(gaps=1, requests=len(requests), versions=versions)


def run(command: BaseCommand, /, **options: Any) -> None:
    """Ask, or print what would be asked. options: as the command declares them."""
    refuse_other_tables()
    as_json = bool(options["json"] or options["heal_json"])
    asked = Counter(gaps=0, requests=0, versions=0)
    with translation.override("en"):
        if options["dry_run"]:
            for _, wanted in chain.from_iterable(_open(options)):
                _count(asked, wanted)
                for each in () if as_json else wanted:
                    line = f"{each.kind} {each.id} {each.first}-{each.last}"
                    command.stdout.write(one_line(line))
        else:
            _ask(options, asked)
        if as_json:
            command.stdout.write(json.dumps(asked))
        elif asked["requests"]:
            would = "Would ask" if options["dry_run"] else "Asked"
            command.stdout.write(
                f"{would} for {counted(asked['versions'], 'version')} of "
                f"{counted(asked['gaps'], 'gap')}, in the topic {TOPIC}."
            )
        elif latest() is None:
            command.stdout.write("annals gaps has never run: run it first.")
        else:
            command.stdout.write(
                "There is nothing to ask for: no gap is open, or all were asked for in the "
                "last 24 hours (--again asks for them, too)."
            )


def _ask(options: dict[str, Any], asked: Counter[str]) -> None:
    producer: KafkaProducer | None = None
    for gaps in _open(options):
        producer = producer or _producer()
        for _, requests in gaps:
            for each in requests:
                producer.send(TOPIC, each.id.encode(), each.value())
        if producer.flush(CONFIRM_MS / 1000 + 1) or producer.failed:
            why = producer.first_error or "the brokers do not answer"
            raise CommandError(
                f"Kafka did not take the requests: {why}. Those for {asked['gaps']:,} gaps "
                "were sent; the next run asks for the others.",
                returncode=2,
            )
        # Noted when Kafka has them: a run that is killed before asks once more.
        with connection.cursor() as cursor:
            cursor.execute(_ASKED, [[id for id, _ in gaps]])
        for _, requests in gaps:
            _count(asked, requests)


def _producer() -> KafkaProducer:
    """One for a topic that exists. Raises CommandError."""
    brokers()
    try:
        producer = KafkaProducer(
            {"client.id": "annals-heal", "message.timeout.ms": CONFIRM_MS, **settings.KAFKA}
        )
        producer.create_topics([TOPIC], 1)
    except (ProducerError, WrongSettingError) as error:
        raise CommandError(str(error), returncode=2) from None
    return producer


def _open(options: dict[str, Any]) -> Iterator[list[tuple[int, list[Request]]]]:
    """The ids of open gaps that are to be asked for, with their requests, some at a time."""
    after, left = 0, options["limit"] if options["limit"] is not None else sys.maxsize
    while left > 0:
        most = min(GAPS_AT_ONCE, left)
        with connection.cursor() as cursor:
            cursor.execute(_OPEN, [after, options["entity"], options["again"], most])
            rows = cursor.fetchall()
        if not rows:
            return
        after = rows[-1][0]
        found = [
            (id, [Request(kind, document, *piece) for piece in pieces])
            for id, kind, document, pieces in rows
            if pieces
        ]
        left -= len(found)
        if found:
            yield found
