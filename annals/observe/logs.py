"""What log lines look like, and what they never hold: the content of documents.

A line is text with `key=value` for people, or one JSON object for machines (ANNALS_LOG_FORMAT).
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

# Attributes that every LogRecord has; all others came in as `extra`.
STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {
    "message", "asctime", "taskName", "request", "server_time", "status_code",
}  # fmt: skip


def describe(error: BaseException) -> str:
    """One line about an error. Of a database's error only the code and, where it cannot quote a
    value, the sentence: its DETAIL and CONTEXT quote the row that failed."""
    name = type(error).__name__
    cause = error.__cause__ if isinstance(error, DjangoDatabaseError) else error
    if isinstance(cause, psycopg.Error):
        state = cause.sqlstate
        if state is None:  # from the client's side: connection lost, refused
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
    """The error and what led to it, newest first, as the interpreter would print them."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


class _Formatter(logging.Formatter):
    def text(self, record: logging.LogRecord) -> str:
        """The message, with errors among its arguments described."""
        args = record.args
        if isinstance(args, tuple):
            args = tuple(describe(a) if isinstance(a, BaseException) else a for a in args)
        if isinstance(record.msg, BaseException):
            return describe(record.msg)
        return str(record.msg) % args if args else str(record.msg)

    def given(self, record: logging.LogRecord) -> dict[str, Any]:
        found = {k: v for k, v in vars(record).items() if k not in STANDARD}
        current = request_id.get()
        return found if current is None else {"requestId": current, **found}

    def trace(self, record: logging.LogRecord) -> str:
        """The stack of the error being handled, oldest cause first; '' where there is none."""
        error = record.exc_info[1] if record.exc_info else None
        parts = [
            "".join(traceback.format_tb(each.__traceback__)) + describe(each)
            for each in _chain(error)
        ]
        return "\n".join(reversed(parts))


class Console(_Formatter):
    """2026-11-21 07:44:11.123 INFO    ingest.consumer.loop: stored rows=120 requestId=…"""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created).astimezone()
        head = f"{moment:%Y-%m-%d %H:%M:%S}.{record.msecs:03.0f} {record.levelname:<7}"
        extra = "".join(f" {key}={value}" for key, value in self.given(record).items())
        trace = self.trace(record)
        return f"{head} {record.name}: {self.text(record)}{extra}" + (trace and f"\n{trace}")


class Json(_Formatter):
    """One object: time (UTC, ISO 8601), level, logger, message, what was given, trace."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": self.text(record),
            **self.given(record),
        }
        trace = self.trace(record)
        if trace:
            line["trace"] = trace
        return msgspec.json.encode(line, enc_hook=str).decode()


def configuration(level: str, style: str) -> dict[str, Any]:
    """Django's LOGGING: everything to stderr. style: `console` or `json`."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "console": {"()": "annals.observe.logs.Console"},
            "json": {"()": "annals.observe.logs.Json"},
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": style}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            "django": {"handlers": [], "level": "INFO"},
            # annals.observe.requests logs each 4xx and 5xx; here come exceptions with their trace.
            "django.request": {"level": "ERROR"},
            # Its lines hold the query string; annals.observe.requests writes one without it.
            "django.server": {"handlers": [], "level": "ERROR", "propagate": True},
            "gunicorn.error": {"handlers": [], "level": "INFO", "propagate": True},
        },
    }
