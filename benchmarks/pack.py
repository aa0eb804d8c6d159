"""`python -m benchmarks pack`: compares days of plain rows with the same days packed."""

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

from annals.demo.simulator import generate_messages
from annals.embedded.process import choose_free_ports
from annals.management.partitions import nightly
from benchmarks.harness import (
    HOST,
    Harness,
    create_database,
    finish_consumer,
    report_figures,
    run_command,
    start_harness,
    use_database,
)
from benchmarks.load import produce_messages, simulate_messages
from benchmarks.timeline import HOST_READER, _time_calls
from benchmarks.timeline_data import BATCH, _copy_batch, _make_environment, _simulate_families
from history import timeline
from history.documents.record import Record
from history.kinds.entities import BY_TABLE, ENTITIES, get_root
from history.retention import catalog, packing
from history.store.days import days
from history.store.days.window import EPOCH, MICROSECONDS_PER_DAY, Window
from history.timeline import TimelineQuery
from ingest.kafka.producer import KafkaProducer
from ingest.messages.decode import decode
from ingest.messages.message import KafkaMessage

ROOT = get_root()
NAME = "annals_pack"
BIG, BIG_VERSIONS = "BIG", 10_000
READ_DOCUMENTS, READ_VERSIONS, READ_DAYS = 60, 120, 6
MESSAGES_PER_SECOND, WARM_UP_SECONDS, WRITE_SECONDS = 2_000, 5, 20
PREPARATION_SECONDS = 5  # longer than the sender needs to make its messages
# The limit of the bytes for a packed version, by the number of versions of each document. The first
# day also trains the dictionary.
GOALS = {2: 220.0, 9: 150.0}

Figures = dict[str, Any]


def run(versions: int = 120_000, cluster: str = "", as_json: bool = False) -> int:
    """Measure packed and plain days, print the figures, and return the exit code.

    Args:
        versions: How many versions each measured day has.
        cluster: The URI of a database on a Citus coordinator. If it is set, only compare packing
            on the cluster with packing on one server. See `pack_cluster.run`.
    """
    if cluster:
        from benchmarks import pack_cluster

        return pack_cluster.run(cluster, versions, as_json)
    with create_database(NAME) as conninfo:
        figures = _measure_days(conninfo, versions)
    print_progress = Console(stderr=True).print
    print_progress("reading a topic again ...")
    figures["again"] = _measure_reading_again(versions // 2)
    figures["targets"] = _list_targets(figures)
    return report_figures("pack", figures, _print_figures, as_json)


def _measure_days(conninfo: str, versions: int) -> Figures:
    run_command(_make_environment(conninfo, 90), "migrate")
    use_database(conninfo)
    today = datetime.now(UTC).date()
    histories = _simulate_histories()
    read_days = [today - timedelta(days=10 + number) for number in range(READ_DAYS)]
    big_day = today - timedelta(days=20)
    day_by_count = {count: today - timedelta(days=30 + count) for count in GOALS}
    figures: Figures = {"sizes": {}, "pages": {}}
    with psycopg.connect(conninfo, autocommit=True) as connection_:
        for day in (*read_days, big_day, *day_by_count.values()):
            days.create_partition(connection_, ROOT.table, day)
        for count, day in day_by_count.items():
            _store_records(connection_, _generate_day(histories, day, count, versions))
        _store_records(connection_, _generate_read_documents(histories, read_days))
        _store_records(connection_, _generate_many_versions(histories, big_day))
        connection_.execute("VACUUM (ANALYZE)")
        plain_pages = _measure_pages()
        for count, day in day_by_count.items():
            figures["sizes"][count] = _measure_packing(connection_, day)
        for day in (*read_days, big_day):
            packing.pack_day(connection_, ROOT, day)
        connection_.execute("VACUUM (ANALYZE)")
        packed_pages = _measure_pages()
        figures["share"] = _measure_packed_share(connection_, today - timedelta(days=25), versions)
        began = time.perf_counter()
        unpacked = packing.unpack_day(connection_, ROOT, day_by_count[9])
        figures["unpack"] = round(unpacked.rows / (time.perf_counter() - began))
    figures["pages"] = {name: (plain_pages[name], packed_pages[name]) for name in plain_pages}
    figures["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return figures


def _measure_packed_share(
    plain_connection: psycopg.Connection[Any], day: date, messages: int
) -> float:
    """Return the size of a packed day as a share of the plain day, over all simulated kinds."""
    start, window = datetime.combine(day, clock(), UTC), Window.at(datetime.now(UTC), 90, 14)
    messages_sent = islice(generate_messages(1, start, step=timedelta(days=1) / messages), messages)
    for entity in ENTITIES:
        days.create_partition(plain_connection, entity.table, day)
    _store_records(
        plain_connection,
        (decode(KafkaMessage(m.topic, 0, 0, 0, m.key, m.value), window) for m in messages_sent),
    )
    plain_bytes = sum(packing.pack_day(plain_connection, entity, day).before for entity in ENTITIES)
    plain_connection.execute("VACUUM")  # frees pages that COPY reserved but did not use
    packed_row = plain_connection.execute(
        "SELECT sum(pg_total_relation_size(name::regclass))::bigint FROM unnest(%s::text[]) name",
        [[days.build_partition_name(entity.table, day) for entity in ENTITIES]],
    ).fetchone()
    return round((packed_row[0] if packed_row else 0) / plain_bytes, 3)


def _measure_reading_again(messages: int) -> Figures:
    """Measure a consumer that reads messages, and that reads them again when their days are packed.

    Also measures how long writes take while a day is being packed.
    """
    start = datetime.now(UTC) - timedelta(days=12)
    step = timedelta(days=8) / messages
    with start_harness(4) as bench:
        bench.run_command("partitions", "maintain")
        messages_sent = islice(generate_messages(1, start, step=step), messages)
        produce_messages(
            bench,
            (
                KafkaMessage(message.topic, 0, 0, 0, message.key, message.value)
                for message in messages_sent
            ),
        )
        [first_run] = bench.run_consumers()
        use_database(bench.conninfo)
        with bench.connect() as plain:
            for partition in catalog.read_partitions(connection, BY_TABLE):
                if (
                    partition.day
                    and partition.rows
                    and partition.day < start.date() + timedelta(days=9)
                ):
                    packing.pack_day(plain, BY_TABLE[partition.table], partition.day)
            plain.execute("TRUNCATE ingest_ledger")
        bench.start_round()
        [second_run] = bench.run_consumers()
        write_figures = _measure_writes_beside_packing(bench, start.date() - timedelta(days=9))
    if (first_run["stored"], second_run["stored"]) != (messages, 0):
        raise RuntimeError(
            f"the first run stored {first_run['stored']} messages instead of {messages}, and the "
            f"second run {second_run['stored']} instead of 0"
        )
    return {
        "new": round(messages / first_run["active_seconds"]),
        "packed": round(messages / second_run["active_seconds"]),
        **write_figures,
    }


def _measure_writes_beside_packing(bench: Harness, day: date) -> Figures:
    """Measure the 99th percentile of the time of a write: alone, and while a day is being packed.

    Messages arrive at MESSAGES_PER_SECOND. The day is packed at the limited rate at which
    `partitions maintain` packs days. The results are in milliseconds.
    """
    [port] = choose_free_ports([None])
    with bench.connect() as plain:
        days.create_partition(plain, ROOT.table, day)
        _store_records(
            plain,
            _generate_day(
                _simulate_histories(), day, 9, WRITE_SECONDS * nightly.PACK_ROWS_PER_SECOND
            ),
        )
        plain.execute("VACUUM (ANALYZE)")
    bench.start_round()
    consumer = bench.start_consumer(None, "--metrics-port", str(port))
    # The sender has its own process: a thread of this process would wait for packing to release the
    # GIL.
    sender = get_context("fork").Process(
        target=_send_messages, args=(bench.broker.get_bootstrap_servers(),)
    )
    sender.start()
    figures: Figures = {}
    time.sleep(PREPARATION_SECONDS + WARM_UP_SECONDS)
    with bench.connect() as plain:
        for name in ("alone", "beside"):
            earlier, began = _read_write_counts(port), time.monotonic()
            if name == "beside":
                packing.pack_day(plain, ROOT, day, rate=nightly.PACK_ROWS_PER_SECOND)
            time.sleep(max(0.0, began + WRITE_SECONDS - time.monotonic()))
            figures[name] = _compute_p99(earlier, _read_write_counts(port))
    sender.join()
    consumer.terminate()
    finish_consumer(consumer)
    return figures


def _send_messages(servers: str) -> None:
    """Send messages at a fixed rate.

    A short delay lets the producer send messages in groups. If the broker got each message alone,
    it would need a whole core.
    """
    producer = KafkaProducer({"bootstrap.servers": servers, "linger.ms": 20})
    began = time.monotonic()
    for number, message in enumerate(
        simulate_messages(
            (PREPARATION_SECONDS + WARM_UP_SECONDS + 2 * WRITE_SECONDS) * MESSAGES_PER_SECOND,
            seed=2,
        ),
        1,
    ):
        producer.send(message.topic, message.key or b"", message.value or b"")
        if number % 20 == 0:
            producer.wait(max(0.0, began + number / MESSAGES_PER_SECOND - time.monotonic()))


def _read_write_counts(port: int) -> dict[float, float]:
    """Read from the metrics of a consumer how many writes it has made, by their duration.

    Returns:
        For each limit in seconds, the number of writes that took this time or less.
    """
    text = urllib.request.urlopen(f"http://{HOST}:{port}/metrics").read().decode()
    lines = re.findall(r'annals_write_seconds_bucket{le="(.+?)"} (\S+)', text)
    return {float(limit): float(count) for limit, count in lines}


def _compute_p99(earlier: Mapping[float, float], later: Mapping[float, float]) -> float:
    """Return the 99th percentile in milliseconds, interpolated within a bucket.

    Args:
        earlier: The histogram before the measurement.
        later: The histogram after the measurement.
    """
    counts = {limit: later[limit] - earlier.get(limit, 0) for limit in sorted(later)}
    target_count, lower_limit, lower_count = 0.99 * max(counts.values()), 0.0, 0.0
    for limit, count in counts.items():
        if count >= target_count:
            return round(
                1000
                * (
                    lower_limit
                    + (limit - lower_limit) * (target_count - lower_count) / (count - lower_count)
                ),
                1,
            )
        lower_limit, lower_count = limit, count
    raise AssertionError


def _simulate_histories() -> list[list[Record]]:
    """Return the versions of each simulated application, without children."""
    histories = [
        [record for record in family if not record.product_instance_id and record.data != b"null"]
        for family in _simulate_families()
    ]
    return sorted(histories, key=len, reverse=True)


def _generate_day(
    histories: Sequence[Sequence[Record]], day: date, count: int, versions: int
) -> Iterator[Record]:
    """Yield about `versions` versions on one day, of documents with `count` versions each.

    Args:
        histories: The simulated versions to copy under new ids.
    """
    start, random_source = _compute_day_start(day), random.Random(count)
    slices = [
        history[index : index + count]
        for history in histories
        for index in range(0, len(history) - count + 1, count)
    ]
    for number, templates in enumerate(islice(cycle(slices), versions // count)):
        id = f"{random_source.getrandbits(96):024x}"
        moments = sorted(random_source.randrange(MICROSECONDS_PER_DAY) for _ in templates)
        for record, moment in zip(templates, moments, strict=True):
            data = bytes(record.data).replace(record.id.encode(), id.encode())
            data = data.replace(b'"number":"', b'"number":"%d' % number)
            yield msgspec.structs.replace(record, id=id, updated_at=start + moment, data=data)


def _generate_read_documents(
    histories: Sequence[Sequence[Record]], read_days: Sequence[date]
) -> Iterator[Record]:
    for number in range(READ_DOCUMENTS):
        for version, record in enumerate(islice(cycle(histories[number]), READ_VERSIONS)):
            day = read_days[-1 - version * len(read_days) // READ_VERSIONS]
            moment = _compute_day_start(day) + version * 100_000_000
            yield msgspec.structs.replace(
                record, id=f"R{number}", version=version, updated_at=moment
            )


def _generate_many_versions(histories: Sequence[Sequence[Record]], day: date) -> Iterator[Record]:
    for version, record in enumerate(islice(cycle(histories[0]), BIG_VERSIONS)):
        moment = _compute_day_start(day) + version * 1_000_000
        yield msgspec.structs.replace(record, id=BIG, version=version, updated_at=moment)


def _compute_day_start(day: date) -> int:
    return (day - EPOCH).days * MICROSECONDS_PER_DAY


def _store_records(plain_connection: psycopg.Connection[Any], records: Iterator[Record]) -> None:
    while batch := list(islice(records, BATCH)):
        _copy_batch(plain_connection, batch)


def _measure_packing(plain_connection: psycopg.Connection[Any], day: date) -> Figures:
    began = time.perf_counter()
    packed = packing.pack_day(plain_connection, ROOT, day)
    seconds = time.perf_counter() - began
    return {
        "versions": packed.rows,
        "plain": round(packed.before / packed.rows, 1),
        "packed": round(packed.after / packed.rows, 1),
        "rate": round(packed.rows / seconds),
    }


def _measure_pages() -> dict[str, dict[str, float]]:
    ids = [f"R{number % READ_DOCUMENTS}" for number in range(200)]
    return {
        "120 versions, page of 50": _time_calls(_fetch_page, ids),
        "10,000 versions in a day, page of 50": _time_calls(_fetch_page, [BIG] * 60),
        "10,000 versions in a day, blame": _time_calls(
            lambda id: timeline.blame_leaves(HOST_READER, ROOT, id), [BIG] * 12, 2
        ),
    }


def _fetch_page(id: str) -> object:
    return timeline.fetch_page(HOST_READER, TimelineQuery(entity=ROOT, id=id))


def _list_targets(figures: Figures) -> list[Figures]:
    sizes, pages = figures["sizes"], figures["pages"]
    usual, big, blame = pages.values()
    limits = [
        *(
            (f"bytes a version, {count} a document", sizes[count]["packed"], limit)
            for count, limit in GOALS.items()
        ),
        ("page of 50, packed to plain", usual[1]["p50"] / usual[0]["p50"], 1.0),
        ("10,000 versions, page of 50, ms", big[1]["p50"], 10.0),
        ("10,000 versions, blame, ms", blame[1]["p50"], 60.0),
        ("seconds for 40,000 versions, packed", 40_000 / sizes[9]["rate"], 1.0),
        ("seconds for 60,000 versions, unpacked", 60_000 / figures["unpack"], 1.0),
        (
            "reading again: seconds to those of new messages",
            figures["again"]["new"] / figures["again"]["packed"],
            2.0,
        ),
        ("99 of 100 writes at 2,000/s while a day is packed, ms", figures["again"]["beside"], 60.0),
        ("memory, MB", figures["memory"], 300.0),
    ]
    return [
        {"name": name, "value": round(value, 2), "limit": limit, "met": value <= limit}
        for name, value, limit in limits
    ]


def _print_figures(figures: Figures) -> None:
    console = Console()
    table = Table("versions a document", "versions", "bytes plain", "packed", "packed a second")
    for count, sizes in figures["sizes"].items():
        table.add_row(*map(str, (count, *sizes.values())))
    console.print(table)
    table = Table("ms", "plain p50", "plain p95", "packed p50", "packed p95")
    for name, (plain_times, packed_times) in figures["pages"].items():
        table.add_row(
            name,
            *map(
                str,
                (plain_times["p50"], plain_times["p95"], packed_times["p50"], packed_times["p95"]),
            ),
        )
    console.print(table)
    console.print(f"A day of all kinds, packed to plain: {figures['share']}")
    console.print(f"Unpacked a second: {figures['unpack']:,}")
    console.print("Messages a second: {new:,}, read again: {packed:,}".format(**figures["again"]))
    console.print(
        "99 of 100 writes at 2,000/s, ms: {alone}, beside: {beside}".format(**figures["again"])
    )
