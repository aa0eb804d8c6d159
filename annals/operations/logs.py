"""Formats log lines as text with `key=value` pairs, or as JSON, without content of documents."""

import json
import logging
import re
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

import msgspec

from history.common.error_text import describe, format_trace
from history.common.plain_text import to_one_line

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)

# The attributes of every LogRecord. All others were passed as `extra`.
STANDARD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "request",
    "server_time",
    "status_code",
}


# Characters that could end a value without quotes.
NEEDS_QUOTES_PATTERN = re.compile(r'[\s="]')


class _Formatter(logging.Formatter):
    def format_text(self, record: logging.LogRecord) -> str:
        """Return the message. Errors in it are described without values of rows."""
        args = record.args
        if isinstance(args, tuple):
            args = tuple(describe(a) if isinstance(a, BaseException) else a for a in args)
        if isinstance(record.msg, BaseException):
            return describe(record.msg)
        return str(record.msg) % args if args else str(record.msg)

    def collect_extra_fields(self, record: logging.LogRecord) -> dict[str, Any]:
        """Return the `extra` fields of the call and the id of the current request."""
        fields = {k: v for k, v in vars(record).items() if k not in STANDARD_ATTRIBUTES}
        current = request_id.get()
        return fields if current is None else {"requestId": current, **fields}

    def format_trace(self, record: logging.LogRecord) -> str:
        """Return the traceback of the logged error, oldest cause first; '' if none was logged."""
        return format_trace(record.exc_info[1] if record.exc_info else None)


class ConsoleFormatter(_Formatter):
    """A formatter of log records as lines for people, followed by the trace of an error.

    Example: `2026-11-21 07:44:11.123 INFO    ingest.consumer.loop: stored rows=120`.
    """

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created).astimezone()
        head = f"{moment:%Y-%m-%d %H:%M:%S}.{record.msecs:03.0f} {record.levelname:<7}"
        extra = "".join(
            f" {key}={_quote_if_needed(value)}"
            for key, value in self.collect_extra_fields(record).items()
        )
        trace = self.format_trace(record)
        line = to_one_line(f"{head} {record.name}: {self.format_text(record)}{extra}")
        # The lines of the trace are indented, so that they do not look like lines of the log.
        return line + "".join(f"\n  {to_one_line(trace_line)}" for trace_line in trace.splitlines())


class JsonFormatter(_Formatter):
    """A formatter of JSON objects: time (UTC), level, logger, message, extra fields and trace."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": self.format_text(record),
            **self.collect_extra_fields(record),
        }
        trace = self.format_trace(record)
        if trace:
            line["trace"] = trace
        try:
            text = msgspec.json.encode(line, enc_hook=str).decode()
        except UnicodeEncodeError:  # half of a surrogate pair
            text = json.dumps(line, default=str)
        if text.isprintable():
            return text
        # JSON need not escape U+2028 and C1 controls, but a terminal obeys them.
        return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def _quote_if_needed(value: object) -> str:
    """Return the value of a field, in quotes if it could look like another field."""
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if NEEDS_QUOTES_PATTERN.search(text) else text


def make_logging_config(level: str, style: str) -> dict[str, Any]:
    """Return Django's LOGGING: all lines go to stderr in the style `console` or `json`."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "console": {"()": "annals.operations.logs.ConsoleFormatter"},
            "json": {"()": "annals.operations.logs.JsonFormatter"},
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": style}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            "django": {"handlers": [], "level": "INFO"},
            # Only exceptions with a traceback: Annals' own request log has all 4xx and 5xx.
            "django.request": {"level": "ERROR"},
            # Off: its lines have the query string, which Annals' own request log leaves out.
            "django.server": {"handlers": [], "level": "ERROR", "propagate": True},
            "gunicorn.error": {"handlers": [], "level": "INFO", "propagate": True},
            # Off: its lines have addresses with ids. Callers of urllib3 log the failures.
            "urllib3": {"level": "ERROR"},
        },
    }
