"""Log lines: what they say, and that no document's content gets into them."""

import json
import logging
from collections.abc import Iterator

import psycopg
import pytest
from django.db import DataError, IntegrityError, OperationalError, ProgrammingError, connection

from annals.observe.logs import ConsoleFormatter, JsonFormatter, request_id
from history.base.error_text import describe

pytestmark = pytest.mark.django_db

SECRET = "Прыгунов-4711"
FORMATS = [ConsoleFormatter(), JsonFormatter()]


def line(formatter: logging.Formatter, message: str, *args: object, **given: object) -> str:
    record = logging.makeLogRecord({"name": "ingest", "levelname": "INFO", "msg": message, **given})
    record.args = args
    return formatter.format(record)


@pytest.fixture
def request_7() -> Iterator[None]:
    token = request_id.set("request-7")
    yield
    request_id.reset(token)


@pytest.mark.usefixtures("request_7")
def test_a_json_line_is_one_object_with_what_was_given() -> None:
    found = json.loads(line(JsonFormatter(), "stored %d rows\nof it", 12, topic="a.b"))
    assert found.pop("time").endswith("+00:00")
    assert found == {
        "level": "INFO",
        "logger": "ingest",
        "message": "stored 12 rows\nof it",
        "requestId": "request-7",
        "topic": "a.b",
    }


@pytest.mark.usefixtures("request_7")
def test_a_console_line_ends_with_what_was_given() -> None:
    text = line(ConsoleFormatter(), "stored %d rows", 12, topic="a.b")
    assert text.endswith("INFO    ingest: stored 12 rows requestId=request-7 topic=a.b")


@pytest.mark.parametrize("formatter", FORMATS, ids=["console", "json"])
def test_an_error_brings_its_stack_and_its_causes(formatter: logging.Formatter) -> None:
    with pytest.raises(RuntimeError) as caught:
        store_nothing()
    text = line(formatter, "failed", exc_info=(RuntimeError, caught.value, caught.tb))
    assert "in store_nothing" in text
    assert text.index("LookupError: no such day") < text.index("RuntimeError: cannot store")


def store_nothing() -> None:
    try:
        find_day()
    except LookupError as error:
        raise RuntimeError("cannot store") from error


def find_day() -> None:
    raise LookupError("no such day")


# PostgreSQL quotes the value in its sentence, in DETAIL, or in CONTEXT.
QUOTING = [
    ("SELECT %s::jsonb", [f'{{"name": "{SECRET}"']),
    ("SELECT %s::integer", [SECRET]),
    ("SELECT %s::text::timestamptz", [SECRET]),
    ("INSERT INTO history_person VALUES (%s, 'a', 'person'), (%s, 'b', '')", [SECRET, SECRET]),
]


@pytest.mark.parametrize("formatter", FORMATS, ids=["console", "json"])
@pytest.mark.parametrize("statement, values", QUOTING)
def test_no_line_about_a_database_error_quotes_a_row(
    formatter: logging.Formatter, statement: str, values: list[object]
) -> None:
    with pytest.raises((DataError, IntegrityError)) as caught:
        execute(statement, values)
    assert SECRET in str(caught.value)  # or the test proves nothing
    info = (type(caught.value), caught.value, caught.tb)
    text = line(formatter, "writing: %s", caught.value, exc_info=info)
    assert SECRET not in text
    assert "SQLSTATE 2" in text


def test_no_line_about_a_failed_copy_quotes_a_row() -> None:
    with pytest.raises(psycopg.DataError) as caught:
        copy(f'{{"name": "{SECRET}"\n')
    assert SECRET in str(caught.value)
    assert SECRET not in describe(caught.value)
    assert describe(caught.value) == "InvalidTextRepresentation: SQLSTATE 22P02"


def test_a_message_of_two_lines_gives_one() -> None:
    """As Citus says that a node is away."""
    raised = "RAISE connection_failure USING MESSAGE = E'refused\\n\\tIs it running?'"
    with pytest.raises(OperationalError) as caught, connection.cursor() as cursor:
        cursor.execute(f"DO $$ BEGIN {raised}; END $$")
    assert describe(caught.value) == "OperationalError: SQLSTATE 08006: refused"


def test_the_sentence_is_kept_where_it_quotes_no_value() -> None:
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
def test_a_line_is_one_line_whatever_is_logged(formatter: logging.Formatter, text: str) -> None:
    """Names, paths, headers and Kafka keys come here as arguments, as fields or in errors."""
    for found in (
        line(formatter, text),
        line(formatter, "key %s", text),
        line(formatter, "bad %s", ValueError(text)),
        line(formatter, "GET", user=text),
    ):
        assert found.isprintable()
        assert "forged" in found
    error = (LookupError, LookupError(text), None)
    first, *rest = line(formatter, "failed", exc_info=error).split("\n")
    assert first.isprintable()
    assert all(each.isprintable() and each.startswith("  ") for each in rest)


def test_a_value_cannot_begin_another_field() -> None:
    found = line(ConsoleFormatter(), "GET /x", user="a status=200", status=401)
    assert found.endswith('GET /x user="a status=200" status=401')


def test_a_json_line_still_says_exactly_what_was_given() -> None:
    for text in FORGED[:-1]:
        assert json.loads(line(JsonFormatter(), "%s", text))["message"] == text
