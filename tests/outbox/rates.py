"""`python -m tests.outbox.rates --versions 100000 --waiting 1000000`: how many versions per second
one relay sends, next to the bare producer with the same messages; with many more that wait; and how
long a single version takes from its commit to the broker's confirmation."""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

from confluent_kafka import Producer

from annals.embedded.broker import Daemon
from outbox.ring import SLOT
from tests.outbox.stand import stand

BODY = "x" * 2_000
FILL = f"""
WITH head AS (
    INSERT INTO outbox_document (key, bucket, version, sent, type, digest, recorded_at,
        waiting_since, attempts, last_error)
    SELECT 'product-instance/' || %s || n, mod(n, 64), 1, 0, 0, '', clock_timestamp(),
        clock_timestamp(), 0, ''
    FROM generate_series(1, %s) AS n RETURNING key, recorded_at
)
INSERT INTO outbox_message (document, version, type, recorded_at, updated_at, client_id, data, slot)
SELECT key, 1, 0, recorded_at, recorded_at, 'shop', %s,
    {SLOT}
FROM head
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.outbox.rates", description=__doc__)
    parser.add_argument("--versions", type=int, default=100_000, help="of 2 KB, to be sent")
    parser.add_argument("--waiting", type=int, default=1_000_000, help="to wait in addition")
    parser.add_argument("--embedded", action="store_true", help="on the embedded broker")
    options = parser.parse_args()
    with stand(embedded=options.embedded) as place:
        from tests.kafka import brokers
        from tests.outbox.relays import TOPIC

        brokers.create(place.broker, [TOPIC])
        _fill("a", options.versions)
        print(f"bare producer: {_bare(place.broker, options.versions):,.0f} messages/s")
        print(f"one relay: {_drain(place.broker, options.versions):,.0f} versions/s")
        delays = _delays(place.broker)
        print(
            f"commit to confirmation: p50 {statistics.median(delays):.1f} ms,"
            f" p99 {statistics.quantiles(delays, n=100)[98]:.1f} ms"
        )
        _fill("b", options.waiting)
        rate = _drain(place.broker, options.versions)
        print(f"one relay, {options.waiting:,} waiting: {rate:,.0f} versions/s")


def _fill(prefix: str, count: int) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(FILL, [prefix, count, f'{{"x":"{BODY}"}}'])
        cursor.execute("VACUUM ANALYZE outbox_document")


def _bare(broker: Daemon, count: int) -> float:
    producer = Producer({**broker.client(), "enable.idempotence": True, "compression.type": "lz4"})
    value = f'{{"id":"a","version":1,"data":{{"x":"{BODY}"}}}}'.encode()
    began = time.monotonic()
    for n in range(count):
        while True:
            try:
                producer.produce("bare", value, str(n).encode())
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()
    return count / (time.monotonic() - began)


def _drain(broker: Daemon, count: int) -> float:
    """The rate of a relay in this process over this many versions."""
    from outbox.models import Tally
    from tests.outbox import relays

    def sent() -> int:
        return sum(Tally.objects.filter(what="sent").values_list("times", flat=True))

    before = sent()
    with relays.thread(broker, LEASE_SECONDS=5):
        relays.until(lambda: sent() > before)
        began, first, cpu = time.monotonic(), sent(), os.times()
        _until(lambda: sent() - before >= count)
        last, took = sent(), time.monotonic() - began
    used = os.times().user + os.times().system - cpu.user - cpu.system
    if last > first:
        print(f"  processor time of the relay: {used / (last - first) * 1e6:.0f} s per million")
    return (last - first) / took


def _delays(broker: Daemon) -> list[float]:
    """Milliseconds."""
    from tests.outbox import relays
    from tests.outbox.load import Load

    load = Load(documents=1, seed=1)
    delays = []
    with relays.thread(broker, LEASE_SECONDS=5):
        relays.until(lambda: not relays.waiting())
        for n in range(300):
            before = time.perf_counter()
            load.record(f"d{n}")
            while relays.waiting():
                time.sleep(0.001)
            delays.append((time.perf_counter() - before) * 1000)
            time.sleep(0.02)
    return delays


def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.2)


if __name__ == "__main__":
    main()
