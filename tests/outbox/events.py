"""Events for the inbox in a topic: of some keys, numbered, some of them sent twice."""

import json
import random
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from confluent_kafka import Producer

from annals.embedded.broker import Daemon
from outbox.inbox import Message
from outbox.inbox.models import Waiting
from tests.outbox import consumers, processes, relays
from tests.outbox.processes import Process
from tests.outbox.shop.inbox import EVENTS

KEYS = 40
_OFFSETS = count()
# Keys of which one message kills the process, raises for ever, or hangs once.
KILLER, BAD, SLOW = "K0", "K1", "K2"


@dataclass(slots=True)
class Events:
    """Sends events. deliver: takes each. numbers: by key, those that were sent."""

    deliver: Callable[[str, bytes, bytes], None]
    seed: int
    numbers: dict[str, list[int]] = field(default_factory=dict)
    sent: int = 0
    repeated: int = 0
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def send(self, number: int, extra: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """Events of random keys, a tenth of them twice. extra: what the next one of a key does."""
        left = dict(extra or {})
        for _ in range(number):
            key = f"K{self._random.randrange(KEYS)}"
            self._one(key, **left.pop(key, {}))
        for key, what in left.items():
            self._one(key, **what)

    def _one(self, key: str, **what: Any) -> None:
        numbers = self.numbers.setdefault(key, [])
        numbers.append(len(numbers) + 1)
        value = json.dumps({"n": len(numbers), **what}).encode()
        for _ in range(1 + (self._random.random() < 0.1)):
            identity = f"{key}/{len(numbers)}".encode()
            self.deliver(key, value, identity)
            self.sent += 1
        self.repeated = self.sent - sum(map(len, self.numbers.values()))


def to_topic(broker: Daemon) -> Callable[[str, bytes, bytes], None]:
    """Deliver through Kafka."""
    producer = Producer({**broker.client(), "enable.idempotence": True, "linger.ms": 1})

    def deliver(key: str, value: bytes, identity: bytes) -> None:
        producer.produce(EVENTS, value, key, headers=[("idempotency-key", identity)])
        producer.poll(0)

    return deliver


def to_table(key: str, value: bytes, identity: bytes) -> None:
    """Deliver as a consumer does that has read a message."""
    headers = [("idempotency-key", identity)]
    consumers.put(Message(EVENTS, 0, next(_OFFSETS), key.encode(), value, headers))


@dataclass(frozen=True, slots=True)
class Report:
    """events: with an effect, each once. repeats: that the topic had more than once. dead: letters.
    behind: messages that wait for a dead letter."""

    events: int
    repeats: int
    dead: int
    behind: int


def kills(events: Events, start: Callable[[], Process], times: int, size: int = 100) -> Report:
    """Two consumers of which one is killed at a random moment and started again; a message of one
    key kills its process each time, one of another key raises each time, one hangs once. In the end
    each message has had its effect once, in order of its key, but for those behind dead letters."""
    chosen = random.Random(events.seed)
    bad: Mapping[str, Mapping[str, Any]]
    bad = {KILLER: {"do": "kill"}, BAD: {"do": "raise"}, SLOW: {"do": "hang", "times": 1}}
    with processes.kept([start(), start()]) as running:
        events.send(size)
        relays.until(consumers.effects)
        for turn in range(times):
            events.send(chosen.randrange(size // 5, size), bad if turn == times // 3 else None)
            time.sleep(chosen.uniform(0.0, 0.6))
            place = chosen.randrange(2)
            running[place].send_signal(signal.SIGKILL)
            running[place].wait()
            _restart(running, start)
        relays.until(lambda: _restart(running, start) and finished(events), 120)
        for process in running:
            process.send_signal(signal.SIGTERM)
        # One that has just been started may not have its handler yet.
        assert {process.wait(30) for process in running} <= {0, -signal.SIGTERM}
    return check(events)


def finished(events: Events) -> bool:
    """Whether everything is processed, dead, or behind a dead letter."""
    # First that all are there: what is stored later could be anything.
    known = len(consumers.effects()) + Waiting.objects.count()
    if known < sum(map(len, events.numbers.values())):
        return False
    return not Waiting.objects.exclude(state="dead").exclude(key__in=_dead_keys()).exists()


def check(events: Events) -> Report:
    """Each event had its effect once, in order, or is dead, or behind a dead letter."""
    done: dict[str, list[int]] = {}
    for key, n in consumers.effects():
        done.setdefault(key, []).append(n)
    waiting: dict[str, list[int]] = {}
    for each in Waiting.objects.order_by("id"):
        key = bytes(each.key or b"").decode()
        waiting.setdefault(key, []).append(json.loads(bytes(each.value or b""))["n"])
    for key, numbers in events.numbers.items():
        found = done.get(key, []) + waiting.get(key, [])
        assert found == numbers, (key, found, numbers)
    dead = Waiting.objects.filter(state="dead")
    assert {bytes(each.key or b"").decode() for each in dead} == set(waiting), waiting
    return Report(
        sum(map(len, done.values())), events.repeated, dead.count(),
        Waiting.objects.count() - dead.count(),
    )  # fmt: skip


def _dead_keys() -> list[bytes]:
    return [bytes(each.key or b"") for each in Waiting.objects.filter(state="dead")]


def _restart(running: list[Process], start: Callable[[], Process]) -> bool:
    """Always true."""
    for place, process in enumerate(running):
        if process.poll() is not None:
            running[place] = start()
    return True
