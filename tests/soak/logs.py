"""The log lines of all processes that nobody expected."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

_VARIABLE = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{32}"), "ID"),
    (re.compile(r"/(history|applications|product-instance)/\S+"), r"/\1/..."),
    (re.compile(r"(?<![=\d])\d+"), "N"),
    (re.compile(r"\[N\]( at offset N)?"), "[N]"),
)
_POSTGRES = re.compile(r"^(\S+ \S+) UTC \[\d+\] (LOG|WARNING|ERROR|FATAL|PANIC): +(.*)")
_LIBRDKAFKA = re.compile(r"%(\d)\|(\d+\.\d+)\|(\w+)\|[^|]*\| ?(.*)")
_KAFKA = re.compile(r"(ERROR|FATAL) (.*)")
BAD_LEVELS = ("WARNING", "ERROR", "CRITICAL", "FATAL", "PANIC")
# How long after a restart its traces are expected: the processes try again with growing pauses.
AFTER = timedelta(seconds=90)


@dataclass
class Restarts:
    """The name of each server that was restarted, when that began and when it was there again."""

    times: list[tuple[str, datetime, datetime]] = field(default_factory=list)

    def during(self, name: str, moment: datetime) -> bool:
        return any(
            name == each and begin <= moment <= end + AFTER for each, begin, end in self.times
        )


@dataclass(frozen=True)
class Expected:
    """Lines that may come. during: the fault in which, None means at any time."""

    where: str
    text: re.Pattern[str]
    during: str | None
    why: str


def _expected(where: str, text: str, during: str | None, why: str) -> Expected:
    return Expected(where, re.compile(text), during, why)


EXPECTED = (
    # How many 503 there may be is judged by what the people got.
    _expected("web", r"status=503|Service Unavailable", None, "busy, or the database is away"),
    _expected("web", r"pool|error connecting|discarding closed|unavailable|journal|metrics: ",
              "database", "the database is away"),
    _expected("consumer", r"database is not available|not written|no heartbeat|psycopg", "database",
              "the write is repeated"),
    _expected("consumer", r"ingest\.source\.client|waiting for Kafka|offsets not committed|"
              r"claiming all|joining again|no forecast of losses", "broker", "the broker is away"),
    _expected("consumer", r"ERROR: stopped: ", None, "the summary at its end"),
    _expected("simulate", r"Connect|Disconnected|Coordinator load|GETPID|brokers? (is|are) down|"
              r"Timed out|request|new leader-?\d* not found in cache", "broker",
              "the broker is away"),
    _expected("simulate", r"Coordinator load in progress", None, "the broker has just started"),
    _expected("postgres", r"FATAL: (terminating connection due to administrator command|"
              r"the database system is (starting up|shutting down)|"
              r"canceling authentication due to timeout)", "database",
              "the restart itself"),
    _expected("postgres", r"ERROR: duplicate key value", None, "how a repeated message is noticed"),
    _expected("broker", r"controller event queue overloaded", None, "a busy machine"),
)  # fmt: skip


@dataclass(frozen=True)
class Line:
    where: str
    moment: datetime
    level: str
    text: str

    @property
    def kind(self) -> str:
        """The line without what differs from case to case."""
        text = self.text
        for pattern, instead in _VARIABLE:
            text = pattern.sub(instead, text)
        return f"{self.where} {self.level} {text}"[:170]


@dataclass
class Summary:
    """unexpected: lines by kind that are at least warnings, and no fault explains."""

    unexpected: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)


def summary(files: Sequence[tuple[str, Path]], restarts: Restarts) -> Summary:
    """files: each with the name of what wrote it; a name may have a number at its end."""
    found = Summary()
    for name, file in files:
        if not file.exists():
            continue
        for line in _lines(name.rstrip("-0123456789"), file):
            if line.level in BAD_LEVELS and not _is_expected(line, restarts):
                found.unexpected[line.kind] += 1
                found.examples.setdefault(line.kind, line.text[:1000])
    return found


def _is_expected(line: Line, restarts: Restarts) -> bool:
    return any(
        each.where == line.where
        and each.text.search(f"{line.level}: {line.text}")
        and (each.during is None or restarts.during(each.during, line.moment))
        for each in EXPECTED
    )


def _lines(name: str, file: Path) -> Iterator[Line]:
    last = datetime.min.replace(tzinfo=UTC)
    with file.open(errors="replace") as lines:
        for text in map(str.rstrip, lines):
            line = _line(name, text, last)
            if line is not None:
                last = line.moment
                yield line


def _line(name: str, text: str, last: datetime) -> Line | None:
    """None for what is no line of a log: an empty one, the continuation of another, a table. What a
    process of ours prints that is no log line counts as an error at the time of the line before."""
    if name == "postgres":
        return _of_postgres(text)
    if name == "broker":
        return _of_kafka(text)
    found = _of_ours(name, text) or _of_librdkafka(name, text)
    if found is not None or not text or (name == "simulate" and "Error" not in text):
        return found
    return Line(name, last, "ERROR", text)


def _of_ours(name: str, text: str) -> Line | None:
    try:
        found = json.loads(text)
        moment, level = datetime.fromisoformat(found["time"]), found["level"]
    except (ValueError, KeyError, TypeError):
        return None
    if "status" in found:
        return Line(name, moment, level, f"{found['message'].split()[0]} status={found['status']}")
    trace = str(found.get("trace", "")).strip().splitlines()[-1:]
    return Line(name, moment, level, " ".join((found["logger"], found["message"], *trace)))


def _of_librdkafka(name: str, text: str) -> Line | None:
    match = _LIBRDKAFKA.match(text)
    if match is None:
        return None
    level = "ERROR" if int(match[1]) < 4 else "WARNING" if match[1] == "4" else "INFO"
    moment = datetime.fromtimestamp(float(match[2]), UTC)
    return Line(name, moment, level, f"{match[3]} {match[4]}")


def _of_postgres(text: str) -> Line | None:
    match = _POSTGRES.match(text)
    if match is None:
        return None
    moment = datetime.fromisoformat(match[1]).replace(tzinfo=UTC)
    return Line("postgres", moment, match[2], match[3])


def _of_kafka(text: str) -> Line | None:
    """Apache Kafka logs warnings and errors only, with the milliseconds or the time before each."""
    match = _KAFKA.search(text)
    if match is None:
        return None
    return Line("broker", datetime.min.replace(tzinfo=UTC), match[1], match[2])
