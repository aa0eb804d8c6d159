"""Events for the inbox: numbered messages of some keys, some of them sent twice."""

import json
import random
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from confluent_kafka import Producer

from annals.embedded.broker import KafkaServer
from outbox.inbox import Message
from outbox.inbox.models import Waiting
from tests.outbox import consumers, processes, relays
from tests.outbox.processes import Process
from tests.outbox.shop.inbox import EVENTS

KEYS = 40
_OFFSETS = count()
# Each of these keys has one bad message. Its handler kills the process, always raises, or hangs
# once.
KILLER, BAD, SLOW = "K0", "K1", "K2"


@dataclass(slots=True)
class EventSender:
    """Sends events with `deliver`. Numbers the events of a key from 1, and keeps the numbers."""

    deliver: Callable[[str, bytes, bytes], None]
    seed: int
    numbers: dict[str, list[int]] = field(default_factory=dict)
    sent: int = 0
    repeated: int = 0
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def send_events(
        self, number: int, extra: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        """Send events of random keys, a tenth of them twice.

        Args:
            extra: More fields for the next event of a key.
        """
        remaining = dict(extra or {})
        for _ in range(number):
            key = f"K{self._random.randrange(KEYS)}"
            self._send_event(key, **remaining.pop(key, {}))
        for key, extra_fields in remaining.items():
            self._send_event(key, **extra_fields)

    def _send_event(self, key: str, **extra_fields: Any) -> None:
        numbers = self.numbers.setdefault(key, [])
        numbers.append(len(numbers) + 1)
        value = json.dumps({"n": len(numbers), **extra_fields}).encode()
        for _ in range(1 + (self._random.random() < 0.1)):
            identity = f"{key}/{len(numbers)}".encode()
            self.deliver(key, value, identity)
            self.sent += 1
        self.repeated = self.sent - sum(map(len, self.numbers.values()))


def make_topic_delivery(broker: KafkaServer) -> Callable[[str, bytes, bytes], None]:
    """Return a function that sends a message to the topic EVENTS.

    The arguments of the function are the key, the value and the identity of the message.
    """
    producer = Producer({**broker.make_client_config(), "enable.idempotence": True, "linger.ms": 1})

    def deliver(key: str, value: bytes, identity: bytes) -> None:
        producer.produce(EVENTS, value, key, headers=[("idempotency-key", identity)])
        producer.poll(0)

    return deliver


def deliver_to_table(key: str, value: bytes, identity: bytes) -> None:
    """Store a message in the inbox, as a consumer does after it has read a message from Kafka."""
    headers = [("idempotency-key", identity)]
    consumers.store_messages(Message(EVENTS, 0, next(_OFFSETS), key.encode(), value, headers))


@dataclass(frozen=True, slots=True)
class EventReport:
    """The numbers of events that were processed, sent twice, or not processed.

    Attributes:
        events: How many events were processed.
        repeats: How many messages repeated an earlier event.
        dead: How many messages are dead letters.
        behind: How many messages wait, because a dead letter has the same key.
    """

    events: int
    repeats: int
    dead: int
    behind: int


def kill_consumers_under_load(
    events: EventSender, start: Callable[[], Process], times: int, size: int = 100
) -> EventReport:
    """Run two consumers under load, and kill one of the two at random moments.

    Three keys have a bad message: the first kills the consumer in each attempt, the second raises
    an error in each attempt, and the third hangs once. Assert that each message is processed once
    and that the messages of a key are processed in order, except dead letters and the messages that
    wait for them.
    """
    random_source = random.Random(events.seed)
    bad_events: Mapping[str, Mapping[str, Any]]
    bad_events = {KILLER: {"do": "kill"}, BAD: {"do": "raise"}, SLOW: {"do": "hang", "times": 1}}
    with processes.kill_at_end([start(), start()]) as consumer_processes:
        events.send_events(size)
        relays.wait_until(consumers.list_effects)
        for round_number in range(times):
            events.send_events(
                random_source.randrange(size // 5, size),
                bad_events if round_number == times // 3 else None,
            )
            time.sleep(random_source.uniform(0.0, 0.6))
            index = random_source.randrange(2)
            consumer_processes[index].send_signal(signal.SIGKILL)
            consumer_processes[index].wait()
            _restart_ended(consumer_processes, start)
        relays.wait_until(
            lambda: _restart_ended(consumer_processes, start) and is_finished(events), 120
        )
        for process in consumer_processes:
            process.send_signal(signal.SIGTERM)
        # A consumer that has just started may not have its signal handler yet.
        assert {process.wait(120) for process in consumer_processes} <= {0, -signal.SIGTERM}
    return check_events(events)


def is_finished(events: EventSender) -> bool:
    """Return whether every message is processed, dead or behind a dead letter of the same key."""
    # All messages must have arrived, because one that arrives later could be in any state.
    present = len(consumers.list_effects()) + Waiting.objects.count()
    if present < sum(map(len, events.numbers.values())):
        return False
    return not Waiting.objects.exclude(state="dead").exclude(key__in=_list_dead_keys()).exists()


def check_events(events: EventSender) -> EventReport:
    """Assert that each key's events were processed once, in order, up to its first dead letter.

    Return how many events there were of each kind.
    """
    processed: dict[str, list[int]] = {}
    for key, n in consumers.list_effects():
        processed.setdefault(key, []).append(n)
    waiting: dict[str, list[int]] = {}
    for message in Waiting.objects.order_by("id"):
        key = bytes(message.key or b"").decode()
        waiting.setdefault(key, []).append(json.loads(bytes(message.value or b""))["n"])
    for key, numbers in events.numbers.items():
        numbers_of_key = processed.get(key, []) + waiting.get(key, [])
        assert numbers_of_key == numbers, (key, numbers_of_key, numbers)
    dead = Waiting.objects.filter(state="dead")
    assert {bytes(message.key or b"").decode() for message in dead} == set(waiting), waiting
    return EventReport(
        sum(map(len, processed.values())),
        events.repeated,
        dead.count(),
        Waiting.objects.count() - dead.count(),
    )


def _list_dead_keys() -> list[bytes]:
    return [bytes(message.key or b"") for message in Waiting.objects.filter(state="dead")]


def _restart_ended(consumer_processes: list[Process], start: Callable[[], Process]) -> bool:
    """Restart the consumers that have ended.

    Always return True, so that a condition can include the call.
    """
    for index, process in enumerate(consumer_processes):
        if process.poll() is not None:
            consumer_processes[index] = start()
    return True
