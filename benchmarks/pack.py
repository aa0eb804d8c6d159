"""`python -m benchmarks pack`: plain days and the same days packed, in one run."""

from __future__ import annotations

import random
import re
import resource
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock
from itertools import cycle, islice
from multiprocessing import get_context
from typing import Any

import msgspec
import psycopg
from django.db import connection
from rich.console import Console
from rich.table import Table

from annals.demo.simulator import stream
from annals.embedded.process import free_ports
from annals.management import packing_days
from benchmarks.harness import (
    HOST,
    Harness,
    finish,
    harness,
    manage,
    new_database,
    print_json,
    use,
)
from benchmarks.load import produce, simulated
from benchmarks.timeline import READER, _timed
from benchmarks.timeline_data import BATCH, _copy, _environment, _families
from history import packing, timeline
from history.daily import days
from history.daily.window import EPOCH, MICROSECONDS_PER_DAY, Window
from history.entities import BY_TABLE, ENTITIES, root
from history.partitions import catalog
from history.record import Record
from history.timeline import Query
from ingest.source.decode import decode
from ingest.source.message import Message
from ingest.source.producer import KafkaProducer

ROOT = root()
NAME = "annals_pack"
BIG, BIG_VERSIONS = "BIG", 10_000
READ, READ_VERSIONS, READ_DAYS = 60, 120, 6
RATE, WARM_S, BESIDE_S = 2_000, 5, 20
LATE_S = 5  # seconds until the messages are made, and more than a day takes to pack
GOALS = {2: 220.0, 9: 150.0}  # the first one trains the dictionary

Figures = dict[str, Any]


def run(versions: int = 120_000, as_json: bool = False) -> int:
    """Measure and print. versions: rows of each of the days of the figures of size and speed."""
    with new_database(NAME) as conninfo:
        figures = _measure(conninfo, versions)
    say = Console(stderr=True).print
    say("reading a topic again ...")
    figures["again"] = _again(versions // 2)
    figures["targets"] = _targets(figures)
    met = all(each["met"] for each in figures["targets"])
    if as_json:
        print_json("pack", figures, met)
    else:
        _print(figures)
    return 0 if met else 1


def _measure(conninfo: str, versions: int) -> Figures:
    manage(_environment(conninfo, 90), "migrate")
    use(conninfo)
    today = datetime.now(UTC).date()
    histories = _histories()
    read_days = [today - timedelta(days=10 + number) for number in range(READ_DAYS)]
    big_day = today - timedelta(days=20)
    sized = {count: today - timedelta(days=30 + count) for count in GOALS}
    figures: Figures = {"sizes": {}, "pages": {}}
    with psycopg.connect(conninfo, autocommit=True) as plain:
        for day in (*read_days, big_day, *sized.values()):
            days.create(plain, ROOT.table, day)
        for count, day in sized.items():
            _store(plain, _alike(histories, day, count, versions))
        _store(plain, _read(histories, read_days))
        _store(plain, _many(histories, big_day))
        plain.execute("VACUUM (ANALYZE)")
        before = _pages()
        for count, day in sized.items():
            figures["sizes"][count] = _packed(plain, day)
        for day in (*read_days, big_day):
            packing.pack(plain, ROOT, day)
        plain.execute("VACUUM (ANALYZE)")
        after = _pages()
        figures["share"] = _share(plain, today - timedelta(days=25), versions)
        began = time.perf_counter()
        done = packing.unpack(plain, ROOT, sized[9])
        figures["unpack"] = round(done.rows / (time.perf_counter() - began))
    figures["pages"] = {name: (before[name], after[name]) for name in before}
    figures["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return figures


def _share(plain: psycopg.Connection[Any], day: date, messages: int) -> float:
    """Bytes of a packed day of all simulated kinds for each byte of the plain one."""
    start, window = datetime.combine(day, clock(), UTC), Window.at(datetime.now(UTC), 90, 14)
    sent = islice(stream(1, start, step=timedelta(days=1) / messages), messages)
    for entity in ENTITIES:
        days.create(plain, entity.table, day)
    _store(plain, (decode(Message(m.topic, 0, 0, 0, m.key, m.value), window) for m in sent))
    before = sum(packing.pack(plain, entity, day).before for entity in ENTITIES)
    plain.execute("VACUUM")  # frees the pages that COPY asked for and did not use
    after = plain.execute(
        "SELECT sum(pg_total_relation_size(name::regclass))::bigint FROM unnest(%s::text[]) name",
        [[days.partition_name(entity.table, day) for entity in ENTITIES]],
    ).fetchone()
    return round((after[0] if after else 0) / before, 3)


def _again(messages: int) -> Figures:
    """Messages a second of one consumer: new ones, and the same when their days are packed; and
    what a write takes while days are packed."""
    start = datetime.now(UTC) - timedelta(days=12)
    step = timedelta(days=8) / messages
    with harness(4) as bench:
        bench.manage("partitions", "maintain")
        sent = islice(stream(1, start, step=step), messages)
        produce(bench, (Message(each.topic, 0, 0, 0, each.key, each.value) for each in sent))
        [new] = bench.consume()
        use(bench.conninfo)
        with bench.connect() as plain:
            for part in catalog.read(connection, BY_TABLE):
                if part.day and part.rows and part.day < start.date() + timedelta(days=9):
                    packing.pack(plain, BY_TABLE[part.table], part.day)
            plain.execute("TRUNCATE ingest_ledger")
        bench.next_round()
        [again] = bench.consume()
        beside = _beside(bench, start.date() - timedelta(days=9))
    if (new["stored"], again["stored"]) != (messages, 0):
        raise RuntimeError(f"{new['stored']} and then {again['stored']} messages were stored")
    return {
        "new": round(messages / new["active_seconds"]),
        "packed": round(messages / again["active_seconds"]),
        **beside,
    }


def _beside(bench: Harness, day: date) -> Figures:
    """Milliseconds within which 99 of 100 writes end, while RATE messages a second come: alone, and
    while this day is packed at the rate of maintain."""
    [port] = free_ports([None])
    with bench.connect() as plain:
        days.create(plain, ROOT.table, day)
        _store(plain, _alike(_histories(), day, 9, BESIDE_S * packing_days.RATE))
        plain.execute("VACUUM (ANALYZE)")
    bench.next_round()
    consumer = bench.start_consumer(None, "--metrics-port", str(port))
    # In a process of its own: here it would wait for the interpreter while a day is packed.
    sender = get_context("fork").Process(target=_send, args=(bench.broker.bootstrap_servers(),))
    sender.start()
    found: Figures = {}
    time.sleep(LATE_S + WARM_S)
    with bench.connect() as plain:
        for name in ("alone", "beside"):
            before, began = _writes(port), time.monotonic()
            if name == "beside":
                packing.pack(plain, ROOT, day, rate=packing_days.RATE)
            time.sleep(max(0.0, began + BESIDE_S - time.monotonic()))
            found[name] = _p99(before, _writes(port))
    sender.join()
    consumer.terminate()
    finish(consumer)
    return found


def _send(servers: str) -> None:
    """RATE messages a second. A broker that gets each alone would need a core for itself."""
    producer = KafkaProducer({"bootstrap.servers": servers, "linger.ms": 20})
    began = time.monotonic()
    for number, message in enumerate(simulated((LATE_S + WARM_S + 2 * BESIDE_S) * RATE, seed=2), 1):
        producer.send(message.topic, message.key or b"", message.value or b"")
        if number % 20 == 0:
            producer.wait(max(0.0, began + number / RATE - time.monotonic()))


def _writes(port: int) -> dict[float, float]:
    """How many writes a consumer has done within each of these seconds."""
    text = urllib.request.urlopen(f"http://{HOST}:{port}/metrics").read().decode()
    lines = re.findall(r'annals_write_seconds_bucket{le="(.+?)"} (\S+)', text)
    return {float(limit): float(count) for limit, count in lines}


def _p99(before: Mapping[float, float], after: Mapping[float, float]) -> float:
    """Milliseconds, in proportion within a bucket."""
    counts = {limit: after[limit] - before.get(limit, 0) for limit in sorted(after)}
    wanted, low, below = 0.99 * max(counts.values()), 0.0, 0.0
    for limit, count in counts.items():
        if count >= wanted:
            return round(1000 * (low + (limit - low) * (wanted - below) / (count - below)), 1)
        low, below = limit, count
    raise AssertionError


def _histories() -> list[list[Record]]:
    """The versions of simulated applications themselves."""
    found = [
        [each for each in family if not each.product_instance_id and each.data != b"null"]
        for family in _families()
    ]
    return sorted(found, key=len, reverse=True)


def _alike(
    histories: Sequence[Sequence[Record]], day: date, count: int, versions: int
) -> Iterator[Record]:
    """Documents with `count` versions each on one day."""
    start, rest = _start(day), random.Random(count)
    runs = [
        history[place : place + count]
        for history in histories
        for place in range(0, len(history) - count + 1, count)
    ]
    for number, run_ in enumerate(islice(cycle(runs), versions // count)):
        id = f"{rest.getrandbits(96):024x}"
        moments = sorted(rest.randrange(MICROSECONDS_PER_DAY) for _ in run_)
        for record, moment in zip(run_, moments, strict=True):
            data = bytes(record.data).replace(record.id.encode(), id.encode())
            data = data.replace(b'"number":"', b'"number":"%d' % number)
            yield msgspec.structs.replace(record, id=id, updated_at=start + moment, data=data)


def _read(histories: Sequence[Sequence[Record]], read: Sequence[date]) -> Iterator[Record]:
    for number in range(READ):
        for version, record in enumerate(islice(cycle(histories[number]), READ_VERSIONS)):
            day = read[-1 - version * len(read) // READ_VERSIONS]
            moment = _start(day) + version * 100_000_000
            yield msgspec.structs.replace(
                record, id=f"R{number}", version=version, updated_at=moment
            )


def _many(histories: Sequence[Sequence[Record]], day: date) -> Iterator[Record]:
    for version, record in enumerate(islice(cycle(histories[0]), BIG_VERSIONS)):
        moment = _start(day) + version * 1_000_000
        yield msgspec.structs.replace(record, id=BIG, version=version, updated_at=moment)


def _start(day: date) -> int:
    return (day - EPOCH).days * MICROSECONDS_PER_DAY


def _store(plain: psycopg.Connection[Any], records: Iterator[Record]) -> None:
    while batch := list(islice(records, BATCH)):
        _copy(plain, batch)


def _packed(plain: psycopg.Connection[Any], day: date) -> Figures:
    began = time.perf_counter()
    done = packing.pack(plain, ROOT, day)
    seconds = time.perf_counter() - began
    return {
        "versions": done.rows,
        "plain": round(done.before / done.rows, 1),
        "packed": round(done.after / done.rows, 1),
        "rate": round(done.rows / seconds),
    }


def _pages() -> dict[str, dict[str, float]]:
    ids = [f"R{number % READ}" for number in range(200)]

    def page(id: str) -> object:
        return timeline.page(READER, Query(entity=ROOT, id=id))

    return {
        "120 versions, page of 50": _timed(page, ids),
        "10,000 versions in a day, page of 50": _timed(page, [BIG] * 60),
        "10,000 versions in a day, blame": _timed(
            lambda id: timeline.blame(READER, ROOT, id), [BIG] * 12, 2
        ),
    }


def _targets(figures: Figures) -> list[Figures]:
    sizes, pages = figures["sizes"], figures["pages"]
    usual, big, blame = pages.values()
    found = [
        *((f"bytes a version, {count} a document", sizes[count]["packed"], most)
          for count, most in GOALS.items()),
        ("page of 50, packed to plain", usual[1]["p50"] / usual[0]["p50"], 1.0),
        ("10,000 versions, page of 50, ms", big[1]["p50"], 10.0),
        ("10,000 versions, blame, ms", blame[1]["p50"], 60.0),
        ("seconds for 40,000 versions, packed", 40_000 / sizes[9]["rate"], 1.0),
        ("seconds for 60,000 versions, unpacked", 60_000 / figures["unpack"], 1.0),
        ("reading again: seconds to those of new messages",
         figures["again"]["new"] / figures["again"]["packed"], 2.0),
        ("99 of 100 writes at 2,000/s while a day is packed, ms", figures["again"]["beside"], 60.0),
        ("memory, MB", figures["memory"], 300.0),
    ]  # fmt: skip
    return [
        {"name": name, "value": round(value, 2), "limit": limit, "met": value <= limit}
        for name, value, limit in found
    ]


def _print(figures: Figures) -> None:
    console = Console()
    table = Table("versions a document", "versions", "bytes plain", "packed", "packed a second")
    for count, each in figures["sizes"].items():
        table.add_row(*map(str, (count, *each.values())))
    console.print(table)
    table = Table("ms", "plain p50", "plain p95", "packed p50", "packed p95")
    for name, (before, after) in figures["pages"].items():
        table.add_row(name, *map(str, (before["p50"], before["p95"], after["p50"], after["p95"])))
    console.print(table)
    console.print(f"A day of all kinds, packed to plain: {figures['share']}")
    console.print(f"Unpacked a second: {figures['unpack']:,}")
    console.print("Messages a second: {new:,}, read again: {packed:,}".format(**figures["again"]))
    console.print(
        "99 of 100 writes at 2,000/s, ms: {alone}, beside: {beside}".format(**figures["again"])
    )
    for target in figures["targets"]:
        word = "met" if target["met"] else "MISSED"
        console.print(f"{target['name']}: {target['value']} (limit {target['limit']}) {word}")
