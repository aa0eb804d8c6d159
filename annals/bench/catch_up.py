"""The rates of the consumer and of bare COPY over a long backlog, for each tenth of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from tempfile import TemporaryFile
from typing import IO, Any

from django.conf import settings

from annals.bench.harness import Harness, bare_copy, finish
from annals.bench.load import TOPIC, prepared, produce
from ingest.simulator.stream import stream
from ingest.source.message import Message

TENTHS = 10


@dataclass(frozen=True, slots=True)
class _Spooled:
    """One transaction of bare COPY. Its payload is in a file: a backlog is larger than memory."""

    statement: str
    rows: int
    bytes: int


def catching_up(bench: Harness, count: int) -> dict[str, Any]:
    """The rates in each tenth of a backlog, of the consumer and of bare COPY of the same rows.

    The backlog has one topic: several topics are read one after the other, and their messages
    differ in size. Needs as much disk as the backlog.
    """
    spooled: list[_Spooled] = []
    with TemporaryFile(dir=settings.ANNALS.home) as spool:
        produce(bench, _spooling(count, spool, spooled))
        figures = _consume(bench, count)
        bench.empty()
        limits = _copy(bench, spooled, spool)
    tenths = figures["tenths_rows_s"]
    return {
        **figures,
        "bare_copy_tenths_rows_s": limits,
        "bare_copy_last_to_first_tenth": round(limits[-1] / limits[0], 2),
        "tenths_ratio": [round(a / b, 2) for a, b in zip(tenths, limits, strict=True)],
    }


def _spooling(count: int, spool: IO[bytes], spooled: list[_Spooled]) -> Iterator[Message]:
    """The messages of the backlog. As they are consumed, their rows are written to the file."""
    start = datetime.now(UTC) - timedelta(days=2)
    of_topic = (e for e in stream(5, start, step=timedelta(days=1) / count) if e.topic == TOPIC)
    size = max(1, min(settings.ANNALS.batch_rows, count // TENTHS))
    left = islice(of_topic, count)
    while batch := list(islice(left, size)):
        messages = [Message(each.topic, 0, 0, 0, each.key, each.value) for each in batch]
        ((statement, payload),) = prepared(messages)[0][0]
        spool.write(payload)
        spooled.append(_Spooled(statement, len(batch), len(payload)))
        yield from messages


def _consume(bench: Harness, count: int) -> dict[str, Any]:
    consumer = bench.start_consumer(until_idle=5)
    samples = [(0.0, 0)]
    began: float | None = None
    with bench.connect() as reader:
        while consumer.poll() is None and samples[-1][1] < count:
            time.sleep(0.1)
            done = reader.execute("SELECT coalesce(sum(read), 0)::bigint FROM ingest_ledger")
            total = done.fetchone()[0]  # type: ignore[index]
            if total and began is None:
                began = time.perf_counter()
                samples = [(0.0, total)]
            elif began is not None:
                samples.append((time.perf_counter() - began, total))
    ended = finish(consumer)
    rate = count / ended.summary["active_seconds"]
    tenths = _rates(samples, count)
    return {
        "messages": count,
        "rows_s": round(rate),
        "eight_hours_at_200_s": round(8 * 3600 * 200 / rate),
        "peak_mb": ended.summary["peak_mb"],
        "tenths_rows_s": [round(each) for each in tenths],
        "last_to_first_tenth": round(tenths[-1] / tenths[0], 2),
    }


def _rates(samples: list[tuple[float, int]], count: int) -> list[float]:
    """Rows per second in each tenth. samples: seconds and rows; the first is in the first tenth."""
    marks = [max(samples[0][1], count * n / TENTHS) for n in range(TENTHS + 1)]
    moments = [_moment(samples, mark) for mark in marks]
    spans = zip(pairwise(marks), pairwise(moments), strict=True)
    return [(end - start) / (until - since) for (start, end), (since, until) in spans]


def _moment(samples: list[tuple[float, int]], rows: float) -> float:
    """The time when `rows` rows were reached, interpolated between two samples."""
    for (t0, n0), (t1, n1) in pairwise(samples):
        if n1 >= rows:
            return t0 + (t1 - t0) * (rows - n0) / (n1 - n0) if n1 > n0 else t0
    raise RuntimeError(f"{rows:.0f} rows were not reached")


def _copy(bench: Harness, spooled: list[_Spooled], spool: IO[bytes]) -> list[int]:
    """Rows per second of bare COPY in each tenth, without the time to read the file."""
    spool.seek(0)
    rates = []
    for n in range(TENTHS):
        tenth = spooled[len(spooled) * n // TENTHS : len(spooled) * (n + 1) // TENTHS]
        batches = [[(each.statement, spool.read(each.bytes))] for each in tenth]
        rates.append(round(sum(each.rows for each in tenth) / bare_copy(bench, batches, 1)))
    return rates
