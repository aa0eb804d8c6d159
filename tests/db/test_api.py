"""The API for its clients: answers, parameters, compression, caching, errors and logins."""

import base64
import gzip
import json
from datetime import timedelta
from urllib.parse import quote

import pytest
from django.contrib.auth.models import User
from django.test import Client

from history.models import Person
from tests.db.calls import check_error, read_data
from tests.db.store import T0, Store, minute

BASE = "/api/v1/history/product-instance"


def make_basic_header(login: str) -> dict[str, str]:
    secret = base64.b64encode(f"{login}:{login}".encode()).decode()
    return {"Authorization": f"Basic {secret}"}


@pytest.fixture
def application_with_seven_versions(store: Store) -> Store:
    for version in range(7):
        store.add("A1", version, {"rate": str(version), "createdAt": "2025-07-03"}, version)
    return store


def test_version_answer_has_fields_of_contract(
    auditor: Client, application_with_seven_versions: Store
) -> None:
    Person.objects.create(login="m.ivanov", full_name="Иванов Михаил", kind="person")
    Person.objects.create(login="top-crm", full_name="Обмен с CRM", kind="service")
    answer_data = read_data(auditor.get(f"{BASE}/A1?pageSize=1&tz=Europe/Moscow"))
    (newest,) = answer_data["history"]
    assert newest == {
        "kind": "product-instance",
        "id": "A1",
        "entity": {"rate": "6", "createdAt": "2025-07-03"},
        "version": 6,
        "type": "UPDATE",
        "updatedAt": (minute(6) + timedelta(hours=3))
        .replace(tzinfo=None)
        .isoformat(timespec="microseconds")
        + "+03:00",
        "createdAt": "2025-07-03",
        "closedAt": None,
        "clientId": "top-crm",
        "clientName": "Обмен с CRM",
        "author": "m.ivanov",
        "authorName": "Иванов Михаил",
        "authorKind": "person",
        "diff": [{"op": "replace", "path": "/rate", "value": "6"}],
        "changes": [
            {
                "path": "/rate",
                "keyPath": "/rate",
                "label": "Interest rate",
                "fieldKind": "percent",
                "kind": "changed",
                "old": "5",
                "new": "6",
            }
        ],
        "previousVersion": 5,
        "missingVersions": [],
        "missingCount": 0,
        "missingReason": None,
        "olderVersions": None,
    }
    assert answer_data["nextPageToken"].startswith("v1:")
    assert answer_data["completeness"]["missingVersions"] == 0


def test_parameter_include_selects_parts_of_each_version_in_answer(
    auditor: Client, application_with_seven_versions: Store
) -> None:
    (newest, *_) = read_data(auditor.get(f"{BASE}/A1?include=diff"))["history"]
    assert "diff" in newest
    assert not {"entity", "changes"} & set(newest)
    (newest, *_) = read_data(auditor.get(f"{BASE}/A1?include=entity,changes"))["history"]
    assert {"entity", "changes"} <= set(newest)
    assert "diff" not in newest


def test_filter_accepts_moments_in_several_notations(
    auditor: Client, application_with_seven_versions: Store
) -> None:
    def list_versions(query: str) -> list[int]:
        return [item["version"] for item in read_data(auditor.get(f"{BASE}/A1?{query}"))["history"]]

    start, end = minute(2).replace(tzinfo=None).isoformat(), quote(minute(4).isoformat())
    assert list_versions(f"from={start}&to={end}") == [3, 2]
    # A `+` that was decoded to a space.
    assert list_versions(f"from={start}&to={minute(4).isoformat()}") == [
        3,
        2,
    ]
    moscow = (minute(2) + timedelta(hours=3)).replace(tzinfo=None).isoformat()
    assert list_versions(f"from={moscow}&to={end}&tz=Europe/Moscow") == [3, 2]


def test_code_of_404_answer_tells_what_was_not_found(
    auditor: Client, application_with_seven_versions: Store
) -> None:
    application_with_seven_versions.add(
        "B1", 9, {"createdAt": (T0 - timedelta(days=400)).isoformat()}, 0
    )
    unknown = ("", "/", "/nothing", "/v1/", "/v1/nothing", "/v2/search", "/schema/x", "/docs/x/")
    for address, code in (
        ("/api/v1/history/loan/A1", "unknown_entity"),
        (f"{BASE}/nobody", "not_found"),
        (f"{BASE}/{'x' * 33}", "not_found"),
        (f"{BASE}/A1/versions/99", "not_found"),
        (f"{BASE}/B1/versions/3", "older_than_retention"),
        (f"{BASE}/A1?to=2001-01-01", "older_than_retention"),
        ("/api/v1/applications/A1/history?to=2001-01-01", "older_than_retention"),
        *((f"/api{item}", "unknown_address") for item in unknown),
    ):
        check_error(auditor.get(address), 404, code)
    assert (
        check_error(auditor.get(f"{BASE}/A1/versions/x"), 400, "bad_parameter")["parameter"]
        == "version"
    )


def test_head_request_gets_same_headers_as_get_request(
    auditor: Client, application_with_seven_versions: Store
) -> None:
    answer, head = (ask(f"{BASE}/A1/versions/3") for ask in (auditor.get, auditor.head))
    assert (head.status_code, head.content) == (200, b"")
    assert {name for name in answer.headers if head.headers.get(name) != answer.headers[name]} == {
        "X-Request-ID"
    }
    assert head.headers["Cache-Control"] == "private, no-cache"


def test_answer_is_compressed_when_client_accepts_it(
    auditor: Client, application_with_seven_versions: Store
) -> None:
    compressed = auditor.get(f"{BASE}/A1", headers={"Accept-Encoding": "gzip"})
    assert compressed.headers["Content-Encoding"] == "gzip"
    assert "Content-Encoding" not in auditor.get(f"{BASE}/A1").headers


@pytest.mark.parametrize(
    "accepted, coding",
    [
        ("gzip", "gzip"),
        ("GZIP; Q=0.5", "gzip"),
        ("br, gzip;q=0.8, *;q=0", "gzip"),
        ("*", "gzip"),
        ("x-gzip", "gzip"),
        ("identity;q=0, *;q=0.1", "gzip"),
        ("identity;q=0.5, gzip;q=0.5", "gzip"),
        ("gzip;q=0", None),
        ("gzip;q=0.000", None),
        ("gzip;q=0, *", None),
        ("*;q=0", None),
        ("identity;q=0, gzip;q=0", None),
        ("identity, gzip;q=0.5", None),
        ("br", None),
        ("notgzip", None),
        ("gzip;q=x", None),
        ("gzip;q=nan", None),
        ("", None),
    ],
)
def test_compression_follows_weights_of_accept_encoding_header(
    accepted: str, coding: str | None, auditor: Client, application_with_seven_versions: Store
) -> None:
    answer = auditor.get(f"{BASE}/A1", headers={"Accept-Encoding": accepted})
    assert answer.headers.get("Content-Encoding") == coding
    assert "Accept-Encoding" in answer.headers["Vary"]
    body = answer.content if coding is None else gzip.decompress(answer.content)
    assert json.loads(body)["status"] == "success"


def test_small_answer_is_compressed_when_client_accepts_only_compressed_answers(
    auditor: Client, application_with_seven_versions: Store
) -> None:
    address = f"{BASE}/A1/versions/x"
    english = {"Accept-Language": "en"}  # the Russian answer has more than 200 bytes
    only = {"Accept-Encoding": "identity;q=0, gzip", **english}
    small = gzip.decompress(auditor.get(address, headers=only).content)
    assert json.loads(small)["status"] == "error"
    assert len(small) < 200
    either = {"Accept-Encoding": "gzip", **english}
    assert "Content-Encoding" not in auditor.get(address, headers=either)


def test_static_file_is_not_compressed_when_client_refuses_compression(
    client: Client, db: None
) -> None:
    answer = client.get(
        "/static/history/annals.css", headers={"Accept-Encoding": "gzip;q=0, br;q=0"}
    )
    answer.getvalue()  # reading the answer closes the file
    assert (answer.status_code, "Content-Encoding" in answer.headers) == (200, False)


VERSION = f"{BASE}/A1/versions/3"


@pytest.mark.parametrize("coding", ["identity", "gzip"])
def test_version_is_answered_with_304_when_client_has_it_already(
    coding: str, auditor: Client, application_with_seven_versions: Store
) -> None:
    headers = {"Accept-Encoding": coding}
    first = auditor.get(VERSION, headers=headers)
    tag = first.headers["ETag"]
    assert first.headers["Cache-Control"] == "private, no-cache"
    for tag_list in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*"):
        again = auditor.get(VERSION, headers=headers | {"If-None-Match": tag_list})
        assert (again.status_code, again.content) == (304, b"")
        for name in ("ETag", "Cache-Control", "Vary"):
            assert again.headers[name] == first.headers[name]
        assert "X-Request-ID" in again.headers
    for tag_list in ('"other"', "no tag", ""):
        assert auditor.get(VERSION, headers={"If-None-Match": tag_list}).status_code == 200
    assert auditor.head(VERSION, headers={"If-None-Match": tag}).status_code == 304


def test_etag_of_version_depends_on_language_and_full_names_and_parameters_tz_and_include(
    auditor: Client, application_with_seven_versions: Store
) -> None:
    def get_tag(query: str = "", **headers: str) -> str:
        return auditor.get(f"{VERSION}{query}", headers=headers).headers["ETag"]

    before = get_tag()
    assert before == get_tag()
    other_tags = [
        get_tag("?tz=Europe/Moscow"),
        get_tag("?include=diff"),
        get_tag(accept_language="ru"),
    ]
    assert len({before, *other_tags}) == 4
    Person.objects.create(login="top-crm", full_name="New name", kind="service")
    assert get_tag() != before


@pytest.mark.parametrize("address", [f"{BASE}/A1", f"{BASE}/A1/versions", f"{BASE}/A1/versions/99"])
def test_answers_other_than_a_stored_version_have_no_etag(
    address: str, auditor: Client, application_with_seven_versions: Store
) -> None:
    answer = auditor.get(address, headers={"If-None-Match": "*"})
    assert "ETag" not in answer.headers
    assert (answer.status_code != 304, answer.headers["Cache-Control"]) == (True, "no-store")


@pytest.mark.parametrize(
    "address",
    [
        "search/?q=A1",
        "completeness/",
        "trace/",
        "nothing/",
        "history/product-instance/",
        "history/product-instance/A1/",
        "history/product-instance/A1/versions/",
        "history/product-instance/A1/versions/3/",
        "history/product-instance/A1/at/?time=2026-01-01",
        "history/product-instance/A1/compare/?from=1&to=2",
        "history/loan/A1/",
        "applications/A1/history/",
        "applications/A1/at/",
    ],
)
def test_error_explains_that_address_must_not_end_with_slash(
    address: str, auditor: Client, application_with_seven_versions: Store
) -> None:
    for language, sentence in (("en", "ends with a slash"), ("ru", "кончается косой чертой")):
        answer = auditor.get(f"/api/v1/{address}", headers={"Accept-Language": language})
        assert answer.status_code in (400, 404)
        assert sentence in json.loads(answer.content)["error"]["message"]
    without = auditor.get(f"/api/v1/{address.replace('/?', '?').rstrip('/')}")
    assert b"slash" not in without.content


def test_id_that_ends_with_slash_is_found(
    auditor: Client, application_with_seven_versions: Store
) -> None:
    application_with_seven_versions.add("A1/", 1, {"a": 1}, 1)
    assert auditor.get(f"{BASE}/A1/").status_code == 200


def test_labels_follow_language_of_request(
    auditor: Client, application_with_seven_versions: Store
) -> None:
    answer_data = read_data(auditor.get(f"{BASE}/A1", headers={"Accept-Language": "en"}))
    assert answer_data["history"][0]["changes"][0]["label"] == "Interest rate"


@pytest.mark.django_db
def test_api_refuses_request_without_valid_login_or_permission(client: Client) -> None:
    response = client.get(f"{BASE}/A1")
    check_error(response, 401, "not_authenticated")
    assert response.headers["WWW-Authenticate"].startswith("Basic")
    check_error(
        client.get(f"{BASE}/A1", headers=make_basic_header("nobody")), 401, "not_authenticated"
    )
    check_error(client.get("/api/v1/nothing"), 401, "not_authenticated")
    check_error(client.get(f"{BASE}/A1", headers=make_basic_header("ops")), 403, "no_permission")
    for login in ("support", "auditor", "admin"):
        check_error(client.get(f"{BASE}/A1", headers=make_basic_header(login)), 404, "not_found")
    wrong = base64.b64encode(b"support:wrong").decode()
    check_error(
        client.get(f"{BASE}/A1", headers={"Authorization": f"Basic {wrong}"}),
        401,
        "not_authenticated",
    )


@pytest.mark.django_db
def test_old_password_is_refused_at_once_after_password_change(client: Client) -> None:
    check_error(client.get(f"{BASE}/A1", headers=make_basic_header("support")), 404, "not_found")
    user = User.objects.get(username="support")
    user.set_password("another")
    user.save()
    check_error(
        client.get(f"{BASE}/A1", headers=make_basic_header("support")), 401, "not_authenticated"
    )


@pytest.mark.parametrize(
    "failing_function",
    [
        "history.timeline.sources.statements.fetch_rows",
        "annals.web.middleware.session_limit._is_over",
    ],
)
def test_screen_says_that_database_is_unreachable(
    failing_function: str,
    client: Client,
    application_with_seven_versions: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The database fails in the view, or in a middleware that runs before the view."""
    from django.db import OperationalError

    def raise_gone(*_: object) -> None:
        raise OperationalError("terminating connection due to administrator command")

    client.force_login(User.objects.get(username="support"))
    client.raise_request_exception = False
    monkeypatch.setattr(failing_function, raise_gone)
    page = client.get("/admin/history/product-instance/A1/")
    assert page.status_code == 503
    assert page.headers["Retry-After"]
    assert "The database cannot be reached" in page.content.decode()
