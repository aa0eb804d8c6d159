"""`annals bench loss`: when Apache Kafka deletes unread messages, next to the forecast."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from threading import Event, Thread

from django.conf import settings
from rich.console import Console
from rich.table import Table

from annals.bench.printed import print_json
from annals.embedded.apache import Apache
from history.entities import ENTITIES
from ingest.forecast.loss import Outlook
from ingest.simulator.stream import stream
from ingest.source.message import KafkaPartition
from ingest.source.producer import Producer
from ingest.source.retention import Forecaster

MEGABYTE = 1_048_576
# Kafka accepts no smaller segments; it deletes whole ones.
SEGMENT = {"segment.bytes": str(MEGABYTE), "cleanup.policy": "delete"}
CHECK_MS = 1_000
# A forecast is wrong if it is off by more than this share of the time that was left, and by more
# than what the broker and this program need to look: they do so every second.
LIMIT, LOOK_SECONDS = 0.2, 2.0
# No broker says where a segment begins: of messages there the forecast may be that of the segment
# before, which is too early. With two segments in the log, that is much.
EXCEPTIONS = 0.15
# The forecast is made at these moments after the first message, for messages at these parts of the
# log. The log is full by then.
ASKED_AFTER_SECONDS = (100.0, 125.0, 150.0)
PARTS = (0.3, 0.6, 0.9)
LINGER_MS = 200
GIVE_UP_SECONDS = 400.0
# Simulated applications begin with small documents: those are left out.
SKIPPED, KINDS_OF_MESSAGES = 3_000, 1_000


@dataclass(frozen=True, slots=True)
class Scenario:
    """A topic with a retention, and what is sent to it. rate: bytes per second."""

    name: str
    topic: str
    retention: dict[str, str]
    rate: float
    compression: str = "none"


LIVE = [entity.topics[0] for entity in ENTITIES]
MINUTE = {"retention.ms": "60000"}
SIZE = {"retention.bytes": str(MEGABYTE)}
SCENARIOS = (
    Scenario("a minute, segments of 10 s", LIVE[0], {**MINUTE, "segment.ms": "10000"}, 50_000),
    Scenario("a minute, segments of 1 MB", LIVE[1], MINUTE, 60_000),
    Scenario("a megabyte", LIVE[2], SIZE, 25_000),
    Scenario("a megabyte, compressed", LIVE[3], SIZE, 100_000, "zstd"),
)


@dataclass(slots=True)
class Forecasted:
    """One forecast and what became of it. Times are Unix seconds; gone: None until it is."""

    scenario: Scenario
    next: int
    asked: float
    said: float | None
    by: str
    gone: float | None = None

    @property
    def error(self) -> float | None:
        """Of the forecast, as a share of the time that was left."""
        if self.gone is None or self.said is None:
            return None
        return (self.said - self.gone) / (self.gone - self.asked)

    @property
    def wrong(self) -> bool:
        if self.gone is None or self.said is None:
            return True
        off = abs(self.said - self.gone)
        return off > LIMIT * (self.gone - self.asked) and off > LOOK_SECONDS


def run(as_json: bool) -> int:
    """Measure and print. Returns 1 if a forecast was too late by more than LIMIT, or too many were
    too early."""
    say = Console(stderr=True).print
    node = Apache(
        settings.ANNALS.home / "bench" / "apache-kafka-loss",
        settings={
            "auto.create.topics.enable": "false",
            "log.retention.check.interval.ms": CHECK_MS,
            "log.segment.delete.delay.ms": CHECK_MS,
        },
    )
    node.start()
    stop = Event()
    try:
        bootstrap = node.bootstrap_servers()
        producer = Producer({"bootstrap.servers": bootstrap})
        for each in SCENARIOS:
            producer.create_topics([each.topic], 1, {**SEGMENT, **each.retention})
        messages = _messages()
        senders = [
            Thread(target=_send, args=(bootstrap, each, messages[each.topic], stop))
            for each in SCENARIOS
        ]
        for sender in senders:
            sender.start()
        say("sending to four topics that nobody reads; this takes some minutes ...")
        found = _compare(bootstrap)
        stop.set()
        for sender in senders:
            sender.join()
    finally:
        stop.set()
        node.kill()
    wrong = [each for each in found if each.wrong]
    late = [each for each in wrong if each.error is None or each.error > 0]
    met = not late and len(wrong) <= EXCEPTIONS * len(found)
    _show(found, met, as_json)
    return 0 if met else 1


def _send(
    bootstrap: str, scenario: Scenario, messages: list[tuple[bytes, bytes]], stop: Event
) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": scenario.compression,
            # Batches of one size, however busy this machine is: how well they are compressed
            # depends on it.
            "linger.ms": LINGER_MS,
        }
    )
    began, sent = time.monotonic(), 0
    for key, value in cycle(messages):
        while sent > (time.monotonic() - began) * scenario.rate and not stop.is_set():
            time.sleep(0.01)
        if stop.is_set():
            break
        producer.send(scenario.topic, key, value)
        sent += len(key) + len(value)
    producer.flush()


def _messages() -> dict[str, list[tuple[bytes, bytes]]]:
    """Simulated versions of each kind, by topic."""
    start = datetime.now(UTC) - timedelta(days=2)
    found: dict[str, list[tuple[bytes, bytes]]] = {each.topic: [] for each in SCENARIOS}
    for each in islice(stream(5, start, step=timedelta(milliseconds=10)), SKIPPED, None):
        if each.topic in found and len(found[each.topic]) < KINDS_OF_MESSAGES:
            found[each.topic].append((each.key, each.value))
            if min(map(len, found.values())) == KINDS_OF_MESSAGES:
                break
    return found


def _compare(bootstrap: str) -> list[Forecasted]:
    """Ask for forecasts at each moment, for parts of what is there then; wait until all of that is
    deleted."""
    places: dict[KafkaPartition, Scenario] = {(each.topic, 0): each for each in SCENARIOS}
    forecaster, deletions = Forecaster(bootstrap, {}), Deletions(bootstrap, [*places])
    found: list[tuple[KafkaPartition, Forecasted]] = []
    began = time.monotonic()
    for due in ASKED_AFTER_SECONDS:
        time.sleep(max(0.0, began + due - time.monotonic()))
        for part in PARTS:
            bounds = forecaster.bounds(places)
            nexts = {p: low + int((end - low) * part) for p, (low, end) in bounds.items()}
            answer = forecaster.outlook({**nexts})
            found += [(p, _forecasted(places[p], nexts[p], answer[p])) for p in nexts]
    forecaster.close()
    while time.monotonic() - began < GIVE_UP_SECONDS:
        for place, each in found:
            each.gone = deletions.at(place, each.next)
        if all(each.gone is not None for _, each in found):
            break
        time.sleep(1)
    deletions.stop()
    return [each for _, each in found]


class Deletions:
    """Looks at the first offsets of partitions all the time, in a thread of its own."""

    def __init__(self, bootstrap: str, places: Sequence[KafkaPartition]) -> None:
        self._seen: dict[KafkaPartition, list[tuple[int, float]]] = {p: [] for p in places}
        self._stop = Event()
        self._thread = Thread(target=self._look, args=(Forecaster(bootstrap, {}),))
        self._thread.start()

    def at(self, place: KafkaPartition, offset: int) -> float | None:
        """When this offset was deleted (Unix time); None: it was not yet."""
        return next((moment for low, moment in self._seen[place] if low > offset), None)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self, forecaster: Forecaster) -> None:
        while not self._stop.wait(0.2):
            for place, (low, _) in forecaster.bounds(self._seen).items():
                seen = self._seen[place]
                if not seen or seen[-1][0] < low:
                    seen.append((low, time.time()))


def _forecasted(scenario: Scenario, next_: int, answer: Outlook) -> Forecasted:
    if answer.forecast is None:
        raise RuntimeError(f"Kafka does not say how long it keeps {scenario.topic}")
    return Forecasted(scenario, next_, answer.log.at, answer.forecast.at, answer.forecast.by)


def _show(found: list[Forecasted], met: bool, as_json: bool) -> None:
    rows = [
        {
            "retention": each.scenario.name,
            "by": each.by,
            "forecast_s": None if each.said is None else round(each.said - each.asked, 1),
            "gone_s": None if each.gone is None else round(each.gone - each.asked, 1),
            "error": None if each.error is None else round(each.error, 3),
            "wrong": each.wrong,
        }
        for each in sorted(found, key=lambda each: each.scenario.name)
    ]
    if as_json:
        print_json("loss", {"forecasts": rows}, met)
        return
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row.values()))
    Console(width=None if sys.stdout.isatty() else 120).print(table)
