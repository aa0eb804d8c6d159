"""Log lines: their form, and that they have no contents of documents."""

import json
import logging
from collections.abc import Iterator

import psycopg
import pytest
from django.db import DataError, IntegrityError, OperationalError, ProgrammingError, connection

from annals.operations.logs import ConsoleFormatter, JsonFormatter, request_id
from history.common.error_text import describe

pytestmark = pytest.mark.django_db

SECRET = "Прыгунов-4711"
FORMATS = [ConsoleFormatter(), JsonFormatter()]


def format_line(
    formatter: logging.Formatter, message: str, *args: object, **attributes: object
) -> str:
    record = logging.makeLogRecord(
        {"name": "ingest", "levelname": "INFO", "msg": message, **attributes}
    )
    record.args = args
    return formatter.format(record)


@pytest.fixture
def request_7() -> Iterator[None]:
    token = request_id.set("request-7")
    yield
    request_id.reset(token)


@pytest.mark.usefixtures("request_7")
def test_json_line_is_object_with_extra_fields() -> None:
    actual = json.loads(format_line(JsonFormatter(), "stored %d rows\nof it", 12, topic="a.b"))
    assert actual.pop("time").endswith("+00:00")
    assert actual == {
        "level": "INFO",
        "logger": "ingest",
        "message": "stored 12 rows\nof it",
        "requestId": "request-7",
        "topic": "a.b",
    }


@pytest.mark.usefixtures("request_7")
def test_console_line_ends_with_extra_fields() -> None:
    text = format_line(ConsoleFormatter(), "stored %d rows", 12, topic="a.b")
    assert text.endswith("INFO    ingest: stored 12 rows requestId=request-7 topic=a.b")


@pytest.mark.parametrize("formatter", FORMATS, ids=["console", "json"])
def test_logged_error_has_traceback_with_causes(formatter: logging.Formatter) -> None:
    with pytest.raises(RuntimeError) as caught:
        store_nothing()
    text = format_line(formatter, "failed", exc_info=(RuntimeError, caught.value, caught.tb))
    assert "in store_nothing" in text
    assert text.index("LookupError: no such day") < text.index("RuntimeError: cannot store")


def store_nothing() -> None:
    try:
        find_day()
    except LookupError as error:
        raise RuntimeError("cannot store") from error


def find_day() -> None:
    raise LookupError("no such day")


# Errors in which PostgreSQL quotes the value in its message, in DETAIL, or in CONTEXT.
QUOTING = [
    ("SELECT %s::jsonb", [f'{{"name": "{SECRET}"']),
    ("SELECT %s::integer", [SECRET]),
    ("SELECT %s::text::timestamptz", [SECRET]),
    ("INSERT INTO history_person VALUES (%s, 'a', 'person'), (%s, 'b', '')", [SECRET, SECRET]),
]


@pytest.mark.parametrize("formatter", FORMATS, ids=["console", "json"])
@pytest.mark.parametrize("statement, values", QUOTING)
def test_database_error_line_has_no_values_of_row(
    formatter: logging.Formatter, statement: str, values: list[object]
) -> None:
    with pytest.raises((DataError, IntegrityError)) as caught:
        execute(statement, values)
    assert SECRET in str(caught.value)  # PostgreSQL's error has the value, so the test can fail
    info = (type(caught.value), caught.value, caught.tb)
    text = format_line(formatter, "writing: %s", caught.value, exc_info=info)
    assert SECRET not in text
    assert "SQLSTATE 2" in text


def test_logged_error_of_copy_command_has_no_values_of_row() -> None:
    with pytest.raises(psycopg.DataError) as caught:
        copy(f'{{"name": "{SECRET}"\n')
    assert SECRET in str(caught.value)
    assert SECRET not in describe(caught.value)
    assert describe(caught.value) == "InvalidTextRepresentation: SQLSTATE 22P02"


def test_error_message_of_two_lines_is_logged_as_one_line() -> None:
    """Citus reports an unreachable node in a message of two lines."""
    raised = "RAISE connection_failure USING MESSAGE = E'refused\\n\\tIs it running?'"
    with pytest.raises(OperationalError) as caught, connection.cursor() as cursor:
        cursor.execute(f"DO $$ BEGIN {raised}; END $$")
    assert describe(caught.value) == "OperationalError: SQLSTATE 08006: refused"


def test_error_message_without_values_is_logged_unchanged() -> None:
    with pytest.raises(ProgrammingError) as caught:
        execute("SELECT * FROM nowhere", [])
    assert describe(caught.value) == (
        'ProgrammingError: SQLSTATE 42P01: relation "nowhere" does not exist'
    )


def execute(statement: str, values: list[object]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)


def copy(row: str) -> None:
    execute("CREATE TEMP TABLE document (data jsonb)", [])
    with connection.connection.cursor() as cursor, cursor.copy("COPY document FROM STDIN") as out:
        out.write(row)


FORGED = (
    "x\n2026-11-22 00:00:00.000 INFO    annals.access: forged",
    "x\r\nforged",
    "x\x1b[2J\x1b]0;forged\x07",
    "x\u2028forged\u2029",
    "x\x85forged\x9b31m",
    "x\u202eforged",
    "x\ud800forged",
)


@pytest.mark.parametrize("formatter", FORMATS, ids=["console", "json"])
@pytest.mark.parametrize("text", FORGED, ids=ascii)
def test_log_entry_is_one_line_whatever_text_it_contains(
    formatter: logging.Formatter, text: str
) -> None:
    """The text is the message, an argument, an extra field or part of an error. Such texts can come
    from outside, for example names, paths, headers and Kafka keys."""
    for actual in (
        format_line(formatter, text),
        format_line(formatter, "key %s", text),
        format_line(formatter, "bad %s", ValueError(text)),
        format_line(formatter, "GET", user=text),
    ):
        assert actual.isprintable()
        assert "forged" in actual
    error = (LookupError, LookupError(text), None)
    first, *remainder = format_line(formatter, "failed", exc_info=error).split("\n")
    assert first.isprintable()
    assert all(item.isprintable() and item.startswith("  ") for item in remainder)


def test_logged_value_cannot_look_like_a_second_field() -> None:
    actual = format_line(ConsoleFormatter(), "GET /x", user="a status=200", status=401)
    assert actual.endswith('GET /x user="a status=200" status=401')


def test_json_line_keeps_exact_values() -> None:
    for text in FORGED[:-1]:
        assert json.loads(format_line(JsonFormatter(), "%s", text))["message"] == text
