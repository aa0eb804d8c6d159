"""What `annals simulate` does."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from random import SystemRandom
from time import monotonic
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from history import clock
from history.counted import counted
from history.entities import BY_NAME, ENTITIES
from history.failure.files import of_file
from history.management.progress import Progress
from history.table import width
from ingest.simulator import actors
from ingest.simulator.children import KINDS
from ingest.simulator.report import report
from ingest.simulator.run_plan import Asked, PlanError, RunPlan, plan
from ingest.simulator.stream import stream
from ingest.simulator.tally import Tally
from ingest.source.producer import Producer, ProducerError


def run(command: BaseCommand, **options: Any) -> None:
    """Produce the messages and print their distribution. options: as the command declares them.
    Raises CommandError."""
    if options["people_csv"] is not None:
        try:
            with options["people_csv"].open("w", encoding="utf-8", newline="") as out:
                count = actors.write_csv(out)
        except OSError as error:  # at its end it does not know its file
            raise CommandError(of_file(error, options["people_csv"])) from error
        command.stdout.write(f"{options['people_csv']}: {count} people and services")
        return
    lacking = [name for name in KINDS if name not in BY_NAME]
    if lacking:
        raise CommandError(
            f"The simulator makes applications: the kind {lacking[0]} is not declared in the file "
            'of ANNALS_ENTITIES_FILE. Add extends = "default" to it.'
        )
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
    _report(command, todo, tally, took, producer, as_json=options["json"])


def _report(
    command: BaseCommand,
    todo: RunPlan,
    tally: Tally,
    took: float,
    producer: Producer,
    *,
    as_json: bool,
) -> None:
    lost = producer.sent - producer.delivered
    out = command.stderr if as_json else command.stdout
    out.write(report(tally, width()))
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
        command.stdout.write(json.dumps(summary | tally.summary()))
    else:
        rate = producer.delivered / took if took else 0.0
        command.stdout.write(
            f"{producer.delivered:,} of {counted(producer.sent, 'message')} delivered in "
            f"{took:.1f} s ({rate:,.0f}/s, {tally.bytes / 1e6:,.1f} MB), seed {todo.seed}"
        )
        command.stdout.write(f"Worth looking at: product-instance {tally.showcase}")
    if lost:
        reason = producer.first_error or "no answer from the broker"
        raise CommandError(
            f"{counted(lost, 'message was', 'messages were')} not delivered: {reason}"
        )


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
