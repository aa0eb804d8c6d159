"""`annals simulate`: produces a realistic load to the live topics."""

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

from history.management.numbers import (
    MAX_DAYS,
    MAX_ID,
    MAX_SECONDS,
    make_number_parser,
    make_whole_parser,
)

if TYPE_CHECKING:
    from annals.demo.simulator import SimulatedMessage, SimulationPlan
    from ingest.kafka.producer import KafkaProducer

_MIN_WAIT_SECONDS = 0.001  # shorter waits are skipped
_SIGNAL_POLL_SECONDS = 0.2  # a signal is noticed within this time


class Command(BaseCommand):
    help = "Produce realistic applications to Kafka."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add(
            "--rps",
            type=make_number_parser(0, 1e6),
            help="messages per second; "
            "0 = as fast as possible (default 200; if --days is given, 0)",
        )
        add("--seconds", type=make_number_parser(0, MAX_SECONDS), help="stop after N seconds")
        add(
            "--applications",
            type=make_whole_parser(0, MAX_ID),
            help="number of applications, each produced up to its last version",
        )
        add("--messages", type=make_whole_parser(0, MAX_ID), help="stop after N messages")
        add(
            "--seed",
            type=int,
            help="the same seed and start give the same bytes (default: a different one each time)",
        )
        add(
            "--days",
            type=make_number_parser(0, MAX_DAYS),
            default=0.0,
            help="spread updatedAt over the last N days (default 0: now)",
        )
        add(
            "--topics-partitions",
            type=make_whole_parser(1, 1_000),
            default=3,
            help="partitions of missing topics, which are created (default 3)",
        )
        add("--json", action="store_true", help="print a summary as JSON")

    def handle(self, *_: Any, **options: Any) -> None:
        from random import SystemRandom

        from django.conf import settings

        from annals.demo.simulator import plan_simulation
        from history.common import clock
        from history.kinds.entities import ENTITIES
        from ingest.kafka.producer import KafkaProducer, ProducerError

        seed = options["seed"]
        names = ("rps", "seconds", "applications", "messages", "days")
        try:
            simulation = plan_simulation(
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
        tally = _send_messages(simulation, options["seconds"], producer)
        self._print_report(
            simulation, tally, monotonic() - began, producer, as_json=options["json"]
        )

    def _print_report(
        self,
        simulation: SimulationPlan,
        tally: SentMessages,
        spent: float,
        producer: KafkaProducer,
        *,
        as_json: bool,
    ) -> None:
        lost = producer.sent - producer.delivered
        if as_json:
            summary = {
                "seed": simulation.seed,
                "start": simulation.start.isoformat(),
                "step": simulation.step.total_seconds(),
                "sideBySide": simulation.side_by_side,
                "seconds": round(spent, 2),
                "delivered": producer.delivered,
                "failed": lost,
                "messages": tally.messages,
                "bytes": tally.bytes,
                "entities": dict(tally.entities),
                "showcase": tally.showcase,
            }
            self.stdout.write(json.dumps(summary))
        else:
            rate = producer.delivered / spent if spent else 0.0
            kinds = ", ".join(f"{count:,} {kind}" for kind, count in tally.entities.items())
            self.stdout.write(
                f"{producer.delivered:,} of {producer.sent:,} messages delivered in {spent:.1f} s "
                f"({rate:,.0f}/s, {tally.bytes / 1e6:,.1f} MB), seed {simulation.seed}: {kinds}"
            )
            self.stdout.write(f"Worth looking at: product-instance {tally.showcase}")
        if lost:
            reason = producer.first_error or "no answer from the broker"
            raise CommandError(f"{lost:,} messages were not delivered: {reason}")


class SentMessages:
    """Counts of the sent messages. `bytes` counts the bytes of their values."""

    def __init__(self) -> None:
        self.messages = self.bytes = 0
        self.entities: Counter[str] = Counter()
        self._interest: Counter[str] = Counter()

    def count_message(self, message: SimulatedMessage) -> None:
        self.messages += 1
        self.bytes += len(message.value)
        self.entities[message.entity] += 1
        # Only the first applications are candidates. More than 16 versions do not help a demo.
        application = message.product_instance_id
        if application in self._interest or len(self._interest) < 2_000:
            self._interest[application] += 4 if message.version == 0 else int(message.version < 16)

    @property
    def showcase(self) -> str | None:
        """The id of the best application to look at: it has many children and versions."""
        return max(self._interest, key=self._interest.__getitem__, default=None)


def _send_messages(
    simulation: SimulationPlan, seconds: float | None, producer: KafkaProducer
) -> SentMessages:
    """Send the planned messages at their rate.

    Stops when all are sent, after `seconds`, or at a signal.
    """
    from annals.demo.simulator import generate_messages
    from history.management.progress import show_progress

    messages = generate_messages(
        simulation.seed,
        simulation.start,
        applications=simulation.applications,
        step=simulation.step,
        side_by_side=simulation.side_by_side,
    )
    tally, began = SentMessages(), monotonic()
    # With a rate, the last message is due exactly after `seconds`, so it gets a second more.
    end = float("inf") if seconds is None else began + seconds + (1.0 if simulation.rps else 0.0)
    with (
        _catch_signals() as stopped,
        show_progress("simulate", simulation.messages, sys.stderr) as advance,
    ):
        for message in islice(messages, simulation.messages):
            due_at = began + (tally.messages + 1) / simulation.rps if simulation.rps else 0.0
            while (seconds_ahead := due_at - monotonic()) > _MIN_WAIT_SECONDS and not stopped():
                producer.wait(min(seconds_ahead, _SIGNAL_POLL_SECONDS))
            if stopped() or monotonic() > end:
                break
            producer.send(message.topic, message.key, message.value)
            tally.count_message(message)
            advance(1)
        producer.flush()
    return tally


@contextmanager
def _catch_signals() -> Iterator[Callable[[], bool]]:
    """Catch Ctrl-C and SIGTERM in a `with` block, so that the report is still printed.

    Yields a function that returns whether a signal has come.
    """
    caught: list[int] = []
    handlers = {
        signal_number: signal.signal(signal_number, lambda number, _: caught.append(number))
        for signal_number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield lambda: bool(caught)
    finally:
        for signal_number, handler in handlers.items():
            signal.signal(signal_number, handler)
