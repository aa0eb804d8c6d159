"""`manage.py simulate`: realistic load on the live topics, and what it was like."""

import json
import signal
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from random import SystemRandom
from time import monotonic
from types import FrameType
from typing import Any, TypeVar

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from rich.console import Console

from history import clock
from history.entities import ENTITIES
from history.management.progress import Progress
from ingest.simulator import actors
from ingest.simulator.report import report
from ingest.simulator.run_plan import LIVE_RPS, Asked, PlanError, RunPlan, plan
from ingest.simulator.stream import stream
from ingest.simulator.tally import Tally
from ingest.source.producer import Producer, ProducerError

N = TypeVar("N", int, float)


class Command(BaseCommand):
    help = "Produce realistic applications to Kafka and print the distribution they had."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--rps", type=_at_least(0.0), help="messages per second; 0 = as fast as possible "
            f"(default {LIVE_RPS:g}, with --days 0)")  # fmt: skip
        add("--seconds", type=_at_least(0.0), help="stop after N seconds")
        add(
            "--applications",
            type=_at_least(0),
            help="number of applications, each produced up to its last version",
        )
        add("--messages", type=_at_least(0), help="stop after N messages")
        add("--seed", type=int, help="the same seed and start give the same bytes "
            "(default: a different one each time)")  # fmt: skip
        add("--days", type=_at_least(0.0), default=0.0,
            help="spread updatedAt over the last N days (default 0: now)")  # fmt: skip
        add("--topics-partitions", type=_at_least(1), default=3,
            help="partitions of missing topics, which are created (default 3)")  # fmt: skip
        add("--json", action="store_true", help="a summary line on stdout, tables on stderr")
        add("--people-csv", type=Path, metavar="FILE",
            help="only write the people of the simulation, for `people import`")  # fmt: skip

    def handle(self, **options: Any) -> None:
        if options["people_csv"] is not None:
            with options["people_csv"].open("w", encoding="utf-8", newline="") as out:
                count = actors.write_csv(out)
            self.stdout.write(f"{options['people_csv']}: {count} people and services")
            return
        seed = options["seed"]
        asked = Asked(
            seed=SystemRandom().randrange(2**31) if seed is None else seed,
            rps=options["rps"],
            seconds=options["seconds"],
            applications=options["applications"],
            messages=options["messages"],
            days=options["days"],
        )
        try:
            todo = plan(asked, clock.now())
            producer = Producer(settings.KAFKA)
            topics = [topic for entity in ENTITIES for topic in entity.topics]
            producer.create_topics(topics, options["topics_partitions"])
        except (PlanError, ProducerError) as error:
            raise CommandError(str(error)) from None
        tally, took = _run(todo, asked.seconds, producer)
        self._report(todo, tally, took, producer, as_json=options["json"])

    def _report(
        self, todo: RunPlan, tally: Tally, took: float, producer: Producer, *, as_json: bool
    ) -> None:
        lost = producer.sent - producer.delivered
        Console(file=sys.stderr if as_json else sys.stdout).print(report(tally))
        if as_json:
            summary = {
                "seed": todo.seed,
                "start": todo.start.isoformat(),
                "step": todo.step.total_seconds(),
                "sideBySide": todo.side_by_side,
                "seconds": round(took, 2),
                "delivered": producer.delivered,
                "failed": lost,
            }
            self.stdout.write(json.dumps(summary | tally.summary()))
        else:
            rate = producer.delivered / took if took else 0.0
            self.stdout.write(
                f"{producer.delivered:,} of {producer.sent:,} messages delivered in {took:.1f} s "
                f"({rate:,.0f}/s, {tally.bytes / 1e6:,.1f} MB), seed {todo.seed}"
            )
            self.stdout.write(f"Worth looking at: product-instance {tally.showcase}")
        if lost:
            reason = producer.first_error or "no answer from the broker"
            raise CommandError(f"{lost:,} messages were not delivered: {reason}")


def _run(todo: RunPlan, seconds: float | None, producer: Producer) -> tuple[Tally, float]:
    """Send the plan's messages at its pace until its end, the time's end, or a signal."""
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
    with _until_signal() as stopped, Progress("simulate", todo.messages, sys.stderr) as progress:
        for message in islice(messages, todo.messages):
            due = began + (tally.messages + 1) / todo.rps if todo.rps else 0.0
            while (ahead := due - monotonic()) > _NO_WAIT and not stopped():
                producer.wait(min(ahead, _NOTICE))
            if stopped() or monotonic() > end:
                break
            producer.send(message.topic, message.key, message.value)
            tally.add(message)
            progress.advance()
        producer.flush()
    return tally, monotonic() - began


_NO_WAIT = 0.001  # seconds: a shorter wait is left out
_NOTICE = 0.2  # seconds within which a signal is noticed


@contextmanager
def _until_signal() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM end the load, not the report of it."""
    caught: list[int] = []

    def catch(number: int, _: FrameType | None) -> None:
        caught.append(number)

    before = {number: signal.signal(number, catch) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(caught)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _at_least(least: N) -> Callable[[str], N]:
    def number(text: str) -> N:
        try:
            value = type(least)(text)
        except ValueError:
            raise ArgumentTypeError(f"{text!r} is not a number") from None
        if not value >= least:
            raise ArgumentTypeError(f"{text} is less than {least:g}")
        return value

    return number
