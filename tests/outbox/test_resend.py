"""Versions are given again: byte for byte, within limits, and only to who has the token."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext

import outbox
from outbox import repair, views
from outbox.message import Version
from outbox.models import Message
from tests.outbox import settings
from tests.outbox.test_checks import found

KIND = "product-instance"
TOKEN, SECOND = "s" * 32, "u" * 50


@pytest.fixture
def tokens(service: str, tmp_path: Path) -> Iterator[Path]:
    """The service with a file of two tokens."""
    file = tmp_path / "tokens"
    file.write_text(f"{TOKEN}\n{SECOND}\n")
    with override_settings(OUTBOX={**settings.OUTBOX, "RESEND_TOKEN_FILE": file}):
        yield file


def record(id: str, count: int, sent: int, size: int = 1) -> None:
    for number in range(count):
        with transaction.atomic():
            outbox.record(KIND, id, {"n": number, "text": "ж\n\u2028" * size}, author="a")
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE outbox_document SET sent = %s WHERE key = %s", [sent, f"{KIND}/{id}"]
        )


def ask(first: object, last: object, id: str = "A1", token: str = TOKEN, **more: str) -> Any:
    given = {"entity": KIND, "id": id, "from": str(first), "to": str(last), **more}
    return Client(headers={"Authorization": f"Bearer {token}"}).get("/outbox/versions", given)


def read(answer: Any) -> tuple[list[bytes], dict[str, Any]]:
    assert answer.status_code == 200, answer.content
    *values, rest = answer.content.split(b"\n")
    return values, json.loads(rest)


def values(id: str, *numbers: int) -> list[bytes]:
    names = [each for each in Version.__slots__ if each != "document"]
    rows = Message.objects.filter(document=f"{KIND}/{id}", version__in=numbers).order_by("version")
    return [Version(f"{KIND}/{id}", *row).value() for row in rows.values_list(*names)]


def nothing(**changes: Any) -> dict[str, Any]:
    return {"gone": [], "waiting": [], "unrecorded": [], "next": None, **changes}


@pytest.mark.usefixtures("tokens")
def test_versions_come_byte_for_byte_and_the_others_are_named() -> None:
    record("A1", 8, sent=6)
    Message.objects.filter(version__in=(2, 5)).delete()
    lines, rest = read(ask(1, 12))
    assert lines == values("A1", 1, 3, 4, 6)
    assert json.loads(lines[0])["data"]["text"] == "ж\n\u2028"
    assert rest == nothing(gone=[[2, 2], [5, 5]], waiting=[[7, 8]], unrecorded=[[9, 12]])
    assert read(ask(3, 4)) == (values("A1", 3, 4), nothing())
    assert read(ask(7, 8)) == ([], nothing(waiting=[[7, 8]]))
    assert read(ask(1, views.NEWEST, id="A2")) == ([], nothing(unrecorded=[[1, views.NEWEST]]))


@pytest.mark.usefixtures("tokens")
def test_pages_by_rows_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    record("A1", 7, sent=7)
    monkeypatch.setattr(repair, "MOST_VERSIONS", 3)
    lines, rest = read(ask(1, 9))
    assert (lines, rest) == (values("A1", 1, 2, 3), nothing(next=4))
    assert read(ask(rest["next"], 9))[1] == nothing(next=7)
    assert read(ask(7, 9)) == (values("A1", 7), nothing(unrecorded=[[8, 9]]))
    Message.objects.filter(version=3).delete()
    assert read(ask(1, 9)) == (values("A1", 1, 2, 4), nothing(gone=[[3, 3]], next=5))
    monkeypatch.setattr(repair, "MOST_BYTES", 60)
    assert read(ask(1, 9)) == (values("A1", 1, 2), nothing(next=4, gone=[[3, 3]]))
    monkeypatch.setattr(repair, "MOST_BYTES", 1)
    assert read(ask(1, 1)) == (values("A1", 1), nothing())


@pytest.mark.usefixtures("tokens")
def test_the_statement_writes_nothing_and_the_table_of_another_document_stays_unread() -> None:
    record("A1", 2, sent=2)
    with CaptureQueriesContext(connection) as queries:
        read(ask(1, 2))
    made = [each["sql"] for each in queries]
    assert "SET TRANSACTION READ ONLY" in made
    assert sum("outbox_" in each for each in made) == 1


@pytest.mark.parametrize(
    "given",
    [
        {"first": 2, "last": 1},
        {"first": "-1", "last": 1},
        {"first": "1.0", "last": 2},
        {"first": "²", "last": 3},
        {"first": 1, "last": views.NEWEST + 1},
        {"first": 1, "last": "9" * 5000},
        {"first": 1, "last": 2, "id": ""},
        {"first": 1, "last": 2, "id": "x" * 33},
        {"first": 1, "last": 2, "id": "a\0b"},
        {"first": 1, "last": 2, "entity": "product-instance/A1"},
        {"first": 1, "last": 2, "limit": "5"},
    ],
)
@pytest.mark.usefixtures("tokens")
def test_a_wrong_question_is_refused(given: dict[str, Any]) -> None:
    answer = ask(**given)
    assert answer.status_code == 400
    assert set(answer.json()) == {"error"}


@pytest.mark.usefixtures("tokens")
@pytest.mark.parametrize("charset", ["utf-7", "unicode_escape", "utf-16"])
def test_the_charset_of_a_question_is_utf_8(charset: str) -> None:
    record("+2AA-", 1, sent=1)
    answer = Client(headers={"Authorization": f"Bearer {TOKEN}"}).get(
        f"/outbox/versions?entity={KIND}&id=%2B2AA-&from=1&to=1",
        CONTENT_TYPE=f"text/plain; charset={charset}",
    )
    assert read(answer) == (values("+2AA-", 1), nothing())


@pytest.mark.usefixtures("tokens")
def test_only_with_a_token() -> None:
    record("A1", 1, sent=1)
    assert ask(1, 1, token=SECOND).status_code == 200
    for wrong in ("", "x" * 32, TOKEN[:-1], f"{TOKEN} {SECOND}", "ж" * 32):
        answer = ask(1, 1, token=wrong)
        assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    client = Client(headers={"Authorization": f"Basic {TOKEN}"})
    assert client.get("/outbox/versions").status_code == 401
    assert client.post("/outbox/versions").status_code == 405


def test_closed_without_a_file_of_tokens(service: str, tmp_path: Path) -> None:
    assert ask(1, 1).status_code == 404
    file = tmp_path / "tokens"
    for text in (None, "", f"{TOKEN}\nshort\n", f"\ufeff{TOKEN}\n", "ж" * 32):
        if text is not None:
            file.write_text(text)
        with override_settings(OUTBOX={**settings.OUTBOX, "RESEND_TOKEN_FILE": file}):
            assert ask(1, 1).status_code == 503
        [(identity, sentence)] = found(RESEND_TOKEN_FILE=file)
        assert (identity, "RESEND_TOKEN_FILE" in sentence) == ("outbox.E005", True)
    [(identity, sentence)] = found(RESEND_TOKEN_FILE=5)
    assert (identity, "path of a file" in sentence) == ("outbox.E001", True)


@pytest.mark.usefixtures("tokens")
def test_a_process_gives_few_answers_at_a_time() -> None:
    for _ in range(2):
        views._places.acquire()
    try:
        answer = ask(1, 1)
        assert (answer.status_code, answer.headers["Retry-After"]) == (429, "1")
    finally:
        views._places.release(2)
    assert ask(1, 1).status_code == 200
