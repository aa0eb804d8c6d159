"""`annals simulate`: realistic load on the live topics, and what it was like."""

from __future__ import annotations

import json
import signal
import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError

from history.management.numbers import MOST_DAYS, MOST_ID, MOST_SECONDS, number, whole

if TYPE_CHECKING:
    from annals.demo.simulator import Message, Plan
    from ingest.source.producer import KafkaProducer

_NO_WAIT = 0.001  # seconds: a shorter wait is left out
_NOTICE = 0.2  # seconds within which a signal is noticed


class Command(BaseCommand):
    help = "Produce realistic applications to Kafka."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--rps", type=number(0, 1e6), help="messages per second; 0 = as fast as possible "
            "(default 200, with --days 0)")  # fmt: skip
        add("--seconds", type=number(0, MOST_SECONDS), help="stop after N seconds")
        add(
            "--applications",
            type=whole(0, MOST_ID),
            help="number of applications, each produced up to its last version",
        )
        add("--messages", type=whole(0, MOST_ID), help="stop after N messages")
        add("--seed", type=int, help="the same seed and start give the same bytes "
            "(default: a different one each time)")  # fmt: skip
        add("--days", type=number(0, MOST_DAYS), default=0.0,
            help="spread updatedAt over the last N days (default 0: now)")  # fmt: skip
        add("--topics-partitions", type=whole(1, 1_000), default=3,
            help="partitions of missing topics, which are created (default 3)")  # fmt: skip
        add("--json", action="store_true", help="print a summary as JSON")

    def handle(self, *_: Any, **options: Any) -> None:
        from random import SystemRandom

        from django.conf import settings

        from annals.demo.simulator import plan
        from history.base import clock
        from history.entities import ENTITIES
        from ingest.source.producer import KafkaProducer, ProducerError

        seed = options["seed"]
        names = ("rps", "seconds", "applications", "messages", "days")
        try:
            todo = plan(
                clock.now(),
                SystemRandom().randrange(2**31) if seed is None else seed,
                **{name: options[name] for name in names},
            )
            producer = KafkaProducer(settings.KAFKA)
            topics = [topic for entity in ENTITIES for topic in entity.topics]
            producer.create_topics(topics, options["topics_partitions"])
        except (ValueError, ProducerError) as error:
            raise CommandError(str(error)) from None
        began = monotonic()
        tally = _send(todo, options["seconds"], producer)
        self._report(todo, tally, monotonic() - began, producer, as_json=options["json"])

    def _report(
        self, todo: Plan, tally: Tally, took: float, producer: KafkaProducer, *, as_json: bool
    ) -> None:
        lost = producer.sent - producer.delivered
        if as_json:
            summary = {
                "seed": todo.seed,
                "start": todo.start.isoformat(),
                "step": todo.step.total_seconds(),
                "sideBySide": todo.side_by_side,
                "seconds": round(took, 2),
                "delivered": producer.delivered,
                "failed": lost,
                "messages": tally.messages,
                "bytes": tally.bytes,
                "entities": dict(tally.entities),
                "showcase": tally.showcase,
            }
            self.stdout.write(json.dumps(summary))
        else:
            rate = producer.delivered / took if took else 0.0
            kinds = ", ".join(f"{count:,} {kind}" for kind, count in tally.entities.items())
            self.stdout.write(
                f"{producer.delivered:,} of {producer.sent:,} messages delivered in {took:.1f} s "
                f"({rate:,.0f}/s, {tally.bytes / 1e6:,.1f} MB), seed {todo.seed}: {kinds}"
            )
            self.stdout.write(f"Worth looking at: product-instance {tally.showcase}")
        if lost:
            reason = producer.first_error or "no answer from the broker"
            raise CommandError(f"{lost:,} messages were not delivered: {reason}")


class Tally:
    """Of the messages that were sent. bytes: of their values."""

    def __init__(self) -> None:
        self.messages = self.bytes = 0
        self.entities: Counter[str] = Counter()
        self._interest: Counter[str] = Counter()

    def add(self, message: Message) -> None:
        self.messages += 1
        self.bytes += len(message.value)
        self.entities[message.entity] += 1
        # Of the first applications. After sixteen versions a page shows nothing new.
        own = message.product_instance_id
        if own in self._interest or len(self._interest) < 2_000:
            self._interest[own] += 4 if message.version == 0 else int(message.version < 16)

    @property
    def showcase(self) -> str | None:
        """The best application for a demo: many kinds of documents with many versions."""
        return max(self._interest, key=self._interest.__getitem__, default=None)


def _send(todo: Plan, seconds: float | None, producer: KafkaProducer) -> Tally:
    """Send the plan's messages at its pace until its end, the time's end, or a signal."""
    from annals.demo.simulator import stream
    from history.management.progress import progress

    messages = stream(
        todo.seed,
        todo.start,
        applications=todo.applications,
        step=todo.step,
        side_by_side=todo.side_by_side,
    )
    tally, began = Tally(), monotonic()
    # A paced run of N seconds ends with its last message, not just before it.
    end = float("inf") if seconds is None else began + seconds + (1.0 if todo.rps else 0.0)
    with _until_signal() as stopped, progress("simulate", todo.messages, sys.stderr) as advance:
        for message in islice(messages, todo.messages):
            due = began + (tally.messages + 1) / todo.rps if todo.rps else 0.0
            while (ahead := due - monotonic()) > _NO_WAIT and not stopped():
                producer.wait(min(ahead, _NOTICE))
            if stopped() or monotonic() > end:
                break
            producer.send(message.topic, message.key, message.value)
            tally.add(message)
            advance(1)
        producer.flush()
    return tally


@contextmanager
def _until_signal() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM end the load, not the report of it."""
    caught: list[int] = []
    before = {
        each: signal.signal(each, lambda number, _: caught.append(number))
        for each in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield lambda: bool(caught)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
