"""The format of log lines. They never contain the content of documents.

A line is text with `key=value` pairs, or one JSON object (ANNALS_LOG_FORMAT).
"""

import logging
import traceback
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

import msgspec
import psycopg
from django.db import Error as DjangoDatabaseError

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)

# Attributes that every LogRecord has. All others were passed as `extra`.
STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {
    "message", "asctime", "taskName", "request", "server_time", "status_code",
}  # fmt: skip


def describe(error: BaseException) -> str:
    """One line about an error. A database error gives its SQLSTATE, and its message only if the
    message cannot quote a value. DETAIL and CONTEXT are left out: they quote the failed row."""
    name = type(error).__name__
    cause = error.__cause__ if isinstance(error, DjangoDatabaseError) else error
    if isinstance(cause, psycopg.Error):
        state = cause.sqlstate
        if state is None:  # raised by the client: connection refused or lost
            return f"{name}: {_first_line(cause)}"
        quotes = state[:2] in ("22", "23") or cause.diag.message_primary is None
        return f"{name}: SQLSTATE {state}" + ("" if quotes else f": {cause.diag.message_primary}")
    if isinstance(error, DjangoDatabaseError):
        return f"{name}: {_first_line(error)}"
    text = str(error)
    return f"{name}: {text}" if text else name


def _first_line(error: BaseException) -> str:
    return str(error).split("\n", 1)[0]


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and its causes, newest first, as the interpreter would print them."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


class _Formatter(logging.Formatter):
    def text(self, record: logging.LogRecord) -> str:
        """The message; errors among its arguments go through `describe`."""
        args = record.args
        if isinstance(args, tuple):
            args = tuple(describe(a) if isinstance(a, BaseException) else a for a in args)
        if isinstance(record.msg, BaseException):
            return describe(record.msg)
        return str(record.msg) % args if args else str(record.msg)

    def extra_fields(self, record: logging.LogRecord) -> dict[str, Any]:
        """The `extra` of the call, with the id of the current request."""
        found = {k: v for k, v in vars(record).items() if k not in STANDARD}
        current = request_id.get()
        return found if current is None else {"requestId": current, **found}

    def trace(self, record: logging.LogRecord) -> str:
        """The traceback of the error that is handled, oldest cause first; '' without an error."""
        error = record.exc_info[1] if record.exc_info else None
        parts = [
            "".join(traceback.format_tb(each.__traceback__)) + describe(each)
            for each in _chain(error)
        ]
        return "\n".join(reversed(parts))


class ConsoleFormatter(_Formatter):
    """2026-11-21 07:44:11.123 INFO    ingest.consumer.loop: stored rows=120 requestId=…"""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created).astimezone()
        head = f"{moment:%Y-%m-%d %H:%M:%S}.{record.msecs:03.0f} {record.levelname:<7}"
        extra = "".join(f" {key}={value}" for key, value in self.extra_fields(record).items())
        trace = self.trace(record)
        return f"{head} {record.name}: {self.text(record)}{extra}" + (trace and f"\n{trace}")


class JsonFormatter(_Formatter):
    """One object: time (UTC, ISO 8601), level, logger, message, the extra fields, trace."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": self.text(record),
            **self.extra_fields(record),
        }
        trace = self.trace(record)
        if trace:
            line["trace"] = trace
        return msgspec.json.encode(line, enc_hook=str).decode()


def configuration(level: str, style: str) -> dict[str, Any]:
    """Django's LOGGING: all lines go to stderr. style: `console` or `json`."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "console": {"()": "annals.observe.logs.ConsoleFormatter"},
            "json": {"()": "annals.observe.logs.JsonFormatter"},
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": style}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            "django": {"handlers": [], "level": "INFO"},
            # Only exceptions with their traceback; annals.observe.requests logs each 4xx and 5xx.
            "django.request": {"level": "ERROR"},
            # Off: its lines have the query string; those of annals.observe.requests do not.
            "django.server": {"handlers": [], "level": "ERROR", "propagate": True},
            "gunicorn.error": {"handlers": [], "level": "INFO", "propagate": True},
        },
    }
