"""Log lines: text with `key=value` pairs, or JSON objects. They never contain documents."""

import json
import logging
import re
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

import msgspec

from history.base.error_text import describe, trace
from history.base.plain_text import one_line

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)

# Attributes that every LogRecord has. All others were passed as `extra`.
STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {
    "message", "asctime", "taskName", "request", "server_time", "status_code",
}  # fmt: skip


# In a value: what could end it.
QUOTED = re.compile(r'[\s="]')


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
        return trace(record.exc_info[1] if record.exc_info else None)


class ConsoleFormatter(_Formatter):
    """2026-11-21 07:44:11.123 INFO    ingest.consumer.loop: stored rows=120 requestId=…"""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created).astimezone()
        head = f"{moment:%Y-%m-%d %H:%M:%S}.{record.msecs:03.0f} {record.levelname:<7}"
        extra = "".join(
            f" {key}={_word(value)}" for key, value in self.extra_fields(record).items()
        )
        trace = self.trace(record)
        line = one_line(f"{head} {record.name}: {self.text(record)}{extra}")
        # Indented, so that no line of it can be taken for a line of the log.
        return line + "".join(f"\n  {one_line(each)}" for each in trace.splitlines())


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
        try:
            text = msgspec.json.encode(line, enc_hook=str).decode()
        except UnicodeEncodeError:  # half of a surrogate pair
            text = json.dumps(line, default=str)
        if text.isprintable():
            return text
        # JSON need not escape U+2028, C1 controls and the like, but who shows the line obeys them.
        return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def _word(value: object) -> str:
    """The value of a field; in quotes if it could be taken for the beginning of another field."""
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if QUOTED.search(text) else text


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
            # Off: its lines have addresses, with ids. Who calls it says what failed.
            "urllib3": {"level": "ERROR"},
        },
    }
