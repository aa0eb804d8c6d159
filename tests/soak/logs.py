"""Finds unexpected lines in the logs of all processes."""

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
# How long after a restart processes may log errors about it. They retry with growing pauses.
RECOVERY_TIME = timedelta(seconds=90)


@dataclass
class RestartTimes:
    """When servers were restarted."""

    # Each with the name of the server, and the beginning and the end of the restart.
    times: list[tuple[str, datetime, datetime]] = field(default_factory=list)

    def is_during(self, name: str, moment: datetime) -> bool:
        return any(
            name == restarted and begin <= moment <= end + RECOVERY_TIME
            for restarted, begin, end in self.times
        )


@dataclass(frozen=True)
class ExpectedLine:
    """A kind of log line that is allowed in the logs of a soak."""

    where: str  # the name of the process
    text: re.Pattern[str]
    during: str | None  # the server during whose restart it may occur; None means always
    reason: str


def _make_expected(process_name: str, text: str, during: str | None, reason: str) -> ExpectedLine:
    return ExpectedLine(process_name, re.compile(text), during, reason)


EXPECTED = (
    # final_counts.py judges the number of answers with status 503.
    _make_expected("web", r"status=503|Service Unavailable", None, "busy, or the database is away"),
    _make_expected(
        "web",
        r"pool|error connecting|discarding closed|unavailable|journal|"
        r"metrics of the store were not collected",
        "database",
        "the database is away",
    ),
    _make_expected(
        "consumer",
        r"database is not available|not written|no heartbeat|psycopg",
        "database",
        "the write is repeated",
    ),
    _make_expected(
        "consumer",
        r"ingest\.kafka\.client|waiting for Kafka|offsets not committed|"
        r"claiming all|joining the group|forecasting losses failed",
        "broker",
        "the broker is away",
    ),
    _make_expected("consumer", r"ERROR: stopped: ", None, "the summary at its end"),
    _make_expected(
        "simulate",
        r"Connect|Disconnected|Coordinator load|GETPID|"
        r"brokers? (is|are) down|Timed out|request|new leader-?\d* not found in cache",
        "broker",
        "the broker is away",
    ),
    _make_expected(
        "simulate", r"Coordinator load in progress", None, "the broker has just started"
    ),
    _make_expected(
        "postgres",
        r"FATAL: (terminating connection due to administrator command|"
        r"the database system is (starting up|shutting down)|"
        r"canceling authentication due to timeout)",
        "database",
        "the restart itself",
    ),
    _make_expected(
        "postgres", r"ERROR: duplicate key value", None, "how a repeated message is noticed"
    ),
    _make_expected("broker", r"controller event queue overloaded", None, "a busy machine"),
)


@dataclass(frozen=True)
class LogLine:
    where: str
    moment: datetime
    level: str
    text: str

    @property
    def kind(self) -> str:
        """The line with placeholders for ids and numbers, so that similar lines are equal."""
        text = self.text
        for pattern, instead in _VARIABLE:
            text = pattern.sub(instead, text)
        return f"{self.where} {self.level} {text}"[:170]


@dataclass
class LogSummary:
    """The unexpected lines of all logs, by `LogLine.kind`."""

    # How many lines there are of each kind: warnings and errors that no restart explains.
    unexpected: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)


def summarize_logs(files: Sequence[tuple[str, Path]], restarts: RestartTimes) -> LogSummary:
    """Read all log files, and collect the unexpected lines.

    Args:
        files: Pairs of the name of a process and its log. A name can end with a number.
    """
    log_summary = LogSummary()
    for name, file in files:
        if not file.exists():
            continue
        for line in _read_lines(name.rstrip("-0123456789"), file):
            if line.level in BAD_LEVELS and not _is_expected(line, restarts):
                log_summary.unexpected[line.kind] += 1
                log_summary.examples.setdefault(line.kind, line.text[:1000])
    return log_summary


def _is_expected(line: LogLine, restarts: RestartTimes) -> bool:
    return any(
        expected.where == line.where
        and expected.text.search(f"{line.level}: {line.text}")
        and (expected.during is None or restarts.is_during(expected.during, line.moment))
        for expected in EXPECTED
    )


def _read_lines(name: str, file: Path) -> Iterator[LogLine]:
    last_moment = datetime.min.replace(tzinfo=UTC)
    with file.open(errors="replace") as lines:
        for text in map(str.rstrip, lines):
            line = _parse_line(name, text, last_moment)
            if line is not None:
                last_moment = line.moment
                yield line


def _parse_line(name: str, text: str, last_moment: datetime) -> LogLine | None:
    """Parse a line of a log.

    Return None for an empty line and for a line that continues a log entry. A line of a process of
    Annals that is not a log line counts as an error at the time of the previous line.
    """
    if name == "postgres":
        return _parse_postgres_line(text)
    if name == "broker":
        return _parse_kafka_line(text)
    parsed = _parse_own_line(name, text) or _parse_librdkafka_line(name, text)
    if parsed is not None or not text or (name == "simulate" and "Error" not in text):
        return parsed
    return LogLine(name, last_moment, "ERROR", text)


def _parse_own_line(name: str, text: str) -> LogLine | None:
    try:
        fields = json.loads(text)
        moment, level = datetime.fromisoformat(fields["time"]), fields["level"]
    except (ValueError, KeyError, TypeError):
        return None
    if "status" in fields:
        return LogLine(
            name, moment, level, f"{fields['message'].split()[0]} status={fields['status']}"
        )
    trace = str(fields.get("trace", "")).strip().splitlines()[-1:]
    return LogLine(name, moment, level, " ".join((fields["logger"], fields["message"], *trace)))


def _parse_librdkafka_line(name: str, text: str) -> LogLine | None:
    match = _LIBRDKAFKA.match(text)
    if match is None:
        return None
    level = "ERROR" if int(match[1]) < 4 else "WARNING" if match[1] == "4" else "INFO"
    moment = datetime.fromtimestamp(float(match[2]), UTC)
    return LogLine(name, moment, level, f"{match[3]} {match[4]}")


def _parse_postgres_line(text: str) -> LogLine | None:
    match = _POSTGRES.match(text)
    if match is None:
        return None
    moment = datetime.fromisoformat(match[1]).replace(tzinfo=UTC)
    return LogLine("postgres", moment, match[2], match[3])


def _parse_kafka_line(text: str) -> LogLine | None:
    """Parse a line of Apache Kafka's log, which has only warnings and errors."""
    match = _KAFKA.search(text)
    if match is None:
        return None
    return LogLine("broker", datetime.min.replace(tzinfo=UTC), match[1], match[2])
