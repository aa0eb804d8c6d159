"""Hostile requests for lists of changes end in bounded time, and reveal no hidden document."""

import base64
import html
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from annals.access.models import JournalEntry
from history.completeness import complete_to
from history.kinds.entities import ENTITIES, ROOT
from history.timeline import budget
from tests.db.calls import check_error, keep_connection, make_handler, read_data
from tests.db.store import Store, add_application_of_two_people, minute, record_queries
from tests.db.test_api_hostile import check_documented_answer, send_raw_request

ADDRESS = "/api/v1/changes"
WINDOW = {"from": minute(-600).isoformat(), "to": minute(600).isoformat()}
BASE = {**WINDOW, "author": "m.ivanov"}
NAMES = (
    "from",
    "to",
    "author",
    "clientId",
    "entity",
    "type",
    "path",
    "include",
    "order",
    "pageSize",
    "pageToken",
    "tz",
)
# Percent-encoded texts; none of them is a valid value of any parameter.
WRONG_TEXTS = (
    "",
    "a" * 8000,
    "%00",
    "a%00b",
    "%ED%A0%80",  # a lone surrogate
    "%C0%80",  # NUL, encoded in two bytes instead of one
    "%E8%E2%E0%ED%EE%E2",  # Windows-1251
    "%FF%FEm%00",  # UTF-16
    "%F4%90%80%80",  # above the last Unicode character
)
MOMENTS = (
    "0001-01-01",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59.999999",
    "0000-01-01",
    "9999-12-31T23:59:59-23:59",
    "10000-01-01",
    "-0001-01-01",
    "1969-12-31T23:59:59.999999Z",
    "2026-03-29T02:30",
    "2026-10-25T02:30",
    "2026-10-25T02:30+02:00",
    "2016-12-31T23:59:60Z",
    "2026-01-01T24:00",
    "2026-W01-1",
    "2026-001",
    "20260101T000000Z",
    "2026-02-30",
    "-1",
    "0",
    "1764000000",
    "now",
    "NaN",
    "1e9",
    "2026-01-01T00:00:00,5",
    "2026-01-01 00:00:00 03:00",
    "2026-01-01T00:00:00+99:99",
    "٢٠٢٦-٠١-٠١",
    "2026-01-01T00:00:00.0000000001Z",
)
ZONES = (
    "Mars/Olympus",
    "../../etc/passwd",
    "/etc/localtime",
    "Factory",
    "localtime",
    "UTC+3",
    "europe/moscow",
    "Europe/Moscow ",
    "posixrules",
    "right/UTC",
    "+03:00",
    ".",
)
OTHER_WORDS = {
    "entity": ("product", "PRODUCT-INSTANCE", "product-instance,product-task", "*", "1"),
    "type": ("update", "0", "CREATE,UPDATE", "ALL"),
    "path": ("rate", "rate/", "$.rate", "*"),
    "include": ("diff,", "all", "diff;entity", "DIFF", ",", "diff,nothing"),
    "order": ("ASC", "up", "1", "desc,asc"),
    "pageSize": ("0", "-1", "501", "1e2", "٥", "5.0", "0x10", "9" * 30, " 5", "+5"),
    "pageToken": ("v1:", "v2:x", "v1:e30:x:y", "null", "-1", "v1:" + "a" * 6000),
}


@pytest.fixture
def ask_raw(store: Store) -> Iterator[Callable[[str], tuple[int, dict[str, str], bytes]]]:
    """Yield a function that sends any query string as a login with the role auditor.

    The function calls the WSGI handler directly, because Django's test client would change a query
    string that is not valid.
    """
    add_application_of_two_people(store)
    client = Client()
    client.force_login(User.objects.get(username="auditor"))
    name = django_settings.SESSION_COOKIE_NAME
    cookie = f"{name}={client.cookies[name].value}"
    application = make_handler()
    with keep_connection():
        yield lambda query: send_raw_request(application, ADDRESS, query=query, HTTP_COOKIE=cookie)


def replace_parameter(name: str, encoded: str) -> str:
    rest = {key: value for key, value in BASE.items() if key != name}
    return f"{urlencode(rest)}&{name}={encoded}"


def test_error_of_get_changes_says_which_parameter_is_malformed(
    ask_raw: Callable[[str], tuple[int, dict[str, str], bytes]],
) -> None:
    cases = [(name, text) for name in NAMES for text in WRONG_TEXTS]
    cases += [(name, f"x&{name}=x") for name in NAMES]
    cases += [("tz", quote(zone)) for zone in ZONES]
    cases += [(name, quote(word)) for name, words in OTHER_WORDS.items() for word in words]
    accepted = []
    for name, encoded in cases:
        answer = ask_raw(replace_parameter(name, encoded))
        check_documented_answer(answer, (name, encoded[:40]))
        if answer[0] != 400 or json.loads(answer[2])["error"]["parameter"] != name:
            accepted.append((name, encoded[:40], answer[0]))
    assert accepted == []
    assert len(cases) > 150


def test_error_of_get_changes_says_which_parameter_is_unknown(
    ask_raw: Callable[[str], tuple[int, dict[str, str], bytes]],
) -> None:
    for name in ("sort", "archive", "Author", "author[]", "client_id", "q", "id", "limit", "%00"):
        status, _headers, body = ask_raw(f"{urlencode(BASE)}&{name}=1")
        assert status == 400, name
        assert json.loads(body)["error"]["parameter"] == name.replace("%00", "\0")


def test_get_changes_gives_a_documented_answer_however_the_moment_is_written(
    ask_raw: Callable[[str], tuple[int, dict[str, str], bytes]],
) -> None:
    for moment in MOMENTS:
        for name in ("from", "to"):
            answer = ask_raw(replace_parameter(name, quote(moment)) + "&tz=Europe/Berlin")
            check_documented_answer(answer, (name, moment))
            if answer[0] == 400:
                assert json.loads(answer[2])["error"]["parameter"] in ("from", "to")
        # `from` and `to` of the same moment are an empty span.
        answer = ask_raw(f"author=m.ivanov&from={quote(moment)}&to={quote(moment)}")
        check_documented_answer(answer, moment)
        if answer[0] == 200:
            assert json.loads(answer[2])["data"]["history"] == []


def test_get_changes_refuses_long_time_span_without_author(
    ask_raw: Callable[[str], tuple[int, dict[str, str], bytes]],
) -> None:
    for query in (
        "",
        "order=asc&to=2099-01-01",
        urlencode({"from": minute(-100_000).isoformat()}),
        urlencode({**WINDOW, "type": "UPDATE"}),
        urlencode({**WINDOW, "path": "/rate"}),
        urlencode({**WINDOW, "entity": "product-task", "pageSize": 500}),
        urlencode({"from": "0001-01-01", "to": "9999-12-31", "order": "asc"}),
    ):
        status, _headers, body = ask_raw(query)
        assert (status, json.loads(body)["error"]["parameter"]) == (400, "author"), query
    swapped = urlencode({"author": "m.ivanov", "from": WINDOW["to"], "to": WINDOW["from"]})
    assert json.loads(ask_raw(swapped)[2])["error"]["parameter"] == "from"


def test_get_changes_refuses_token_that_was_altered_or_belongs_to_a_different_query(
    store: Store, auditor: Client
) -> None:
    add_application_of_two_people(store)
    question = {**BASE, "pageSize": 1}
    token = read_data(auditor.get(ADDRESS, question))["nextPageToken"]
    tokens = [token[:length] for length in range(0, len(token), 7) if length]
    tokens += [f"{token}x", token.swapcase(), token.replace("v1:", ""), token + token]
    tokens += [
        token[:index] + chr(ord(token[index]) ^ 1) + token[index + 1 :]
        for index in range(0, len(token) - 1, 5)
    ]
    timeline = auditor.get("/api/v1/history/product-instance/A1", {"pageSize": 1})
    tokens.append(read_data(timeline)["nextPageToken"])
    tokens.append(
        read_data(auditor.get("/api/v1/applications/A1/history?pageSize=1"))["nextPageToken"]
    )
    for other in tokens:
        answer = auditor.get(ADDRESS, {**question, "pageToken": other})
        assert check_error(answer, 400, "bad_parameter")["parameter"] == "pageToken", other
    for change in (
        {"author": "m.prygunov"},
        {"clientId": "top-crm"},
        {"entity": "product-instance"},
        {"type": "UPDATE"},
        {"path": "/rate"},
        {"order": "asc"},
        {"from": minute(-599).isoformat()},
        {"to": minute(599).isoformat()},
    ):
        answer = auditor.get(ADDRESS, {**question, **change, "pageToken": token})
        assert check_error(answer, 400, "bad_parameter")["parameter"] == "pageToken", change
    same = read_data(auditor.get(ADDRESS, {**question, "pageToken": token}))["history"]
    end_with_z = minute(600).strftime("%Y-%m-%dT%H:%M:%SZ")  # the moment WINDOW["to"]
    for change in ({"tz": "Asia/Tokyo"}, {"include": "diff"}, {"pageSize": 1, "to": end_with_z}):
        answer = read_data(auditor.get(ADDRESS, {**question, **change, "pageToken": token}))
        assert [entry["version"] for entry in answer["history"]] == [same[0]["version"]]


MANY = 200_000
AT_ONCE = 20_000  # the versions of one moment, written by a job


@pytest.fixture
def busy_person(store: Store) -> Store:
    """Store 200,000 versions of 2,000 applications in four days, all by one robot."""
    for day in range(-1, 5):
        store.make_day(ROOT, minute(day * 1440))
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO product_instance_aud
                (id, version, data, updated_at, client_id, author, type)
            SELECT 'M' || number %% 2000, number / 2000, jsonb_build_object('rate', number),
                %(start)s + CASE WHEN number < %(at_once)s THEN interval '0'
                    ELSE number * interval '1.5 seconds' END,
                'top-robot', 'm.busy', CASE WHEN number < 2000 THEN 0 ELSE 1 END
            FROM generate_series(0, %(many)s - 1) AS number
            """,
            {"start": minute(0), "many": MANY, "at_once": AT_ONCE},
        )
        cursor.execute("ANALYZE product_instance_aud")
    return store


@pytest.mark.plain_only("a cluster queries one shard for each document of a page")
def test_page_of_changes_by_busy_person_has_bounded_size_and_few_statements(
    busy_person: Store, auditor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "PAGE_SECONDS", 1.0)
    window = {"from": minute(-60).isoformat(), "to": minute(6000).isoformat()}
    middle = {"from": minute(0).isoformat(), "to": minute(0.01).isoformat()}
    for question in (
        {**window, "author": "m.busy"},
        {**window, "author": "m.busy", "order": "asc"},
        {**window, "author": "m.busy", "type": "CREATE"},
        {**window, "clientId": "top-robot", "pageSize": 500, "include": "changes"},
        {**window, "author": "m.busy", "path": "/nothing"},
        {**middle, "author": "m.busy", "pageSize": 500},
        {**window, "author": "nobody"},
    ):
        token: dict[str, str] = {}
        for _page in range(2):
            with record_queries(monkeypatch) as statements:
                answer = read_data(auditor.get(ADDRESS, {**question, **token}))
            assert len(statements) <= 100, question
            assert len(json.dumps(answer, default=str)) < 2 * budget.PAGE_BYTES
            if "nextPageToken" not in answer:
                break
            token = {"pageToken": answer["nextPageToken"]}
    page = auditor.get("/admin/person/m.busy/")
    assert page.status_code == 200
    assert str(MANY) in re.sub(r"\D", "", page.content.decode())


def open_only_visible(_user: object, application: Any) -> bool:
    return not str(application.id).startswith("HIDDEN")


def add_hidden(store: Store) -> None:
    """Store hidden applications and tasks around the visible ones, often with the same moments."""
    for number in range(6):
        for name in ("HIDDEN-A", "HIDDEN-Z"):
            at = number / 2
            store.add(name, number, {"name": "HIDDEN", "rate": number}, at, author="m.ivanov")
            store.add(
                f"T-{name}",
                number,
                {"stage": number},
                at,
                entity="product-task",
                author="m.ivanov",
                application=name,
            )
    # A task that moved from a hidden application to a visible one.
    store.add("T-MOVED", 0, {"stage": 0}, 1, entity="product-task", application="HIDDEN-A")
    store.add("T-MOVED", 1, {"stage": 1}, 2, entity="product-task", application="A1")
    store.add("HIDDEN-B", 0, {}, 5, author="m.hidden", client="hidden-client")


def read_token_values(token: str) -> list[Any]:
    """Return the values that a viewer can decode from a page token. The signature is left out."""
    text = token.removeprefix("v1:").split(":")[0]
    values: list[Any] = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return values


def fetch_all_answers(client: Client, question: Mapping[str, Any]) -> list[Any]:
    """Return everything that a viewer learns from all pages of a query."""
    answers: list[Any] = []
    token: dict[str, str] = {}
    for _page in range(40):
        answer = client.get(ADDRESS, {**question, **token})
        headers = {name: text for name, text in answer.headers.items() if name != "X-Request-ID"}
        page = read_data(answer)
        del page["completeness"]["lagSeconds"]
        next_token = page.pop("nextPageToken", None)
        # The length depends on the token, and the values of the token are compared below.
        headers.pop("Content-Length", None)
        answers.append([headers, page, next_token and read_token_values(next_token)])
        if next_token is None:
            return answers
        token = {"pageToken": next_token}
    raise AssertionError("the pages do not end")


QUESTIONS = tuple(
    {**WINDOW, **filters, "pageSize": size}
    for filters in (
        {"author": "m.ivanov"},
        {"author": "m.hidden"},
        {"clientId": "top-crm"},
        {"clientId": "hidden-client"},
        {"clientId": "top-crm", "path": "/rate"},
        {"clientId": "top-crm", "entity": "product-task"},
        {"clientId": "top-crm", "type": "UPDATE"},
        {"from": minute(0).isoformat(), "to": minute(60).isoformat()},
    )
    for size in (2, 50)
)


def test_answers_are_the_same_with_and_without_hidden_documents(
    store: Store, auditor: Client, settings: Any
) -> None:
    rule = f"{__name__}.open_only_visible"
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, need_to_know=rule)
    add_application_of_two_people(store)
    screens = [f"/admin/changes/?{urlencode(question)}" for question in QUESTIONS[1::2]]
    screens += ["/admin/person/m.ivanov/", "/admin/person/m.hidden/"]
    without = [fetch_all_answers(auditor, question) for question in QUESTIONS]
    pages_without = [read_screen(auditor, screen) for screen in screens]
    add_hidden(store)
    for question, answers in zip(QUESTIONS, without, strict=True):
        for answer, expected in zip(fetch_all_answers(auditor, question), answers, strict=True):
            assert answer == expected, question
    assert [read_screen(auditor, screen) for screen in screens] == pages_without


def read_screen(client: Client, address: str) -> str:
    """Return a page without the parts that differ in each answer: form tokens and times of day."""
    text = client.get(address).content.decode()
    text = re.sub(r'(nonce|value)="[A-Za-z0-9+/=]{20,}"', "", text)
    return re.sub(r"page=v1[^&\"]*|\d\d:\d\d:\d\d", "", text)


@pytest.mark.parametrize("order", ["desc", "asc"])
def test_page_that_ends_at_its_time_limit_does_not_reveal_hidden_documents(
    order: str, store: Store, auditor: Client, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = f"{__name__}.open_only_visible"
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, need_to_know=rule)
    monkeypatch.setattr(budget, "PAGE_SECONDS", 0.0)
    report_store_as_complete(monkeypatch)
    add_application_of_two_people(store)
    add_hidden(store)
    window = {"from": minute(-1).isoformat(), "to": minute(6).isoformat()}
    question = {**window, "author": "m.ivanov", "pageSize": 3, "order": order}
    pages = fetch_all_answers(auditor, question)
    assert "HIDDEN" not in str(pages)
    seen = [(entry["id"], entry["version"]) for _h, page, _t in pages for entry in page["history"]]
    assert sorted(seen) == [("A1", 0), ("A1", 1), ("A1", 2)]


def report_store_as_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report the store as complete up to minute 6, where the span of the test ends.

    An ascending list of an incomplete store would stop before this moment.
    """
    known = complete_to.read_completeness(ENTITIES)
    state = replace(known, complete_to=minute(6))
    monkeypatch.setattr(complete_to, "read_completeness", lambda _kinds: state)


@pytest.mark.parametrize("role", ["ops"])
def test_role_without_history_permission_gets_no_changes(
    role: str, store: Store, client: Client
) -> None:
    add_application_of_two_people(store)
    client.force_login(User.objects.get(username=role))
    check_error(client.get(ADDRESS, BASE), 403, "no_permission")
    for address in (f"/admin/changes/?{urlencode(BASE)}", "/admin/person/m.ivanov/"):
        for more in ("", "&as=csv", "&as=json"):
            answer = client.get(address + more if "?" in address else address)
            assert answer.status_code == 403
            assert b"A1" not in answer.content


def test_each_page_of_changes_writes_journal_entry_that_names_the_author(
    store: Store, support: Client
) -> None:
    add_application_of_two_people(store)
    question = {**BASE, "pageSize": 1}
    token = read_data(support.get(ADDRESS, question))["nextPageToken"]
    support.get(ADDRESS, {**question, "pageToken": token})
    support.get("/admin/changes/", BASE)
    support.get("/admin/changes/", {**BASE, "as": "csv"})
    support.get("/admin/person/m.ivanov/")
    lines = [entry.query for entry in JournalEntry.objects.order_by("at")]
    assert len(lines) == 5
    assert all("m.ivanov" in line for line in lines)


def test_timeline_links_to_person_page_when_login_has_special_characters(
    store: Store, support: Client
) -> None:
    for number, login in enumerate(("a\nb", "a/../b", ".", "..", "?#%2F", "<b>", "\u2028")):
        store.add("A1", number, {"rate": number}, number, author=login)
        page = support.get("/admin/history/product-instance/A1/").content.decode()
        # The author of the newest version.
        address = re.findall(r'href="(/admin/person/[^"]*)"', page)[0]
        person = support.get(html.unescape(address)).content.decode()
        assert "clientId=top-crm" in person, login
