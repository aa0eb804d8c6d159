"""Numbers in any notation, and errors: every answer under /api/ is JSON with a request id."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import signals
from django.core.handlers.wsgi import WSGIHandler
from django.db import close_old_connections
from django.test import Client

from history import timeline
from history.addresses import keeping_raw_path
from tests.db.store import Store

BASE = "/api/v1/history/product-instance/A1"
# How PostgreSQL's jsonb writes 1e-6, 0e-6, 1e2 and 1e-9, among others that Python writes alike.
NUMBERS = [
    *("0.000001", "0.000000", "-0.000001", "100", "0.000000001", "1.50", "123456789.000001"),
    "12345678901234567890.10",
]


@pytest.fixture
def auditor(client: Client, db: None) -> Client:
    client.force_login(User.objects.get(username="auditor"))
    client.raise_request_exception = False
    return client


@pytest.mark.parametrize("number", NUMBERS)
def test_every_call_shows_a_number_as_it_is_stored(
    auditor: Client, store: Store, number: str
) -> None:
    for version, rate in enumerate(["7", number]):
        data = f'{{"rate": {rate}, "list": [{rate}], "createdAt": {rate}}}'
        store.add("A1", version, data, version)
        store.add("R1", version, data, version, entity="participant-role")
    for call in (
        *(f"{BASE}", f"{BASE}/versions/1", f"{BASE}/compare?from=0&to=1", f"{BASE}/blame"),
        *(f"{BASE}/fields?path=/rate", f"{BASE}/at?time=2999-01-01"),
        "/api/v1/applications/A1/history",
        "/api/v1/applications/A1/at?time=2999-01-01",
    ):
        response = auditor.get(call)
        assert response.status_code == 200, (call, response.content)
        found: list[str] = []
        json.loads(response.content, parse_float=found.append, parse_int=found.append)
        assert number in found, call


def error(response: Any, status: int, code: str) -> dict[str, Any]:
    assert (response.status_code, response.headers["Content-Type"]) == (status, "application/json")
    body = json.loads(response.content)
    assert body["status"] == "error"
    found: dict[str, Any] = body["error"]
    assert found["code"] == code
    assert found["message"]
    assert found["requestId"]
    assert found["requestId"] == response.headers["X-Request-ID"]
    return found


@pytest.mark.parametrize("address", ["", "/", "/nothing", "/v2/search", "/schema/x", "/docs/x/"])
def test_an_unknown_address(auditor: Client, address: str) -> None:
    error(auditor.get(f"/api{address}"), 404, "unknown_address")


def test_an_unknown_address_outside_the_api_is_a_page(auditor: Client) -> None:
    for address in ("/nothing", "/apis", "/x/"):
        response = auditor.get(address)
        assert (response.status_code, response.headers["Content-Type"][:9]) == (404, "text/html")


@pytest.mark.parametrize("place", ["view", "renderer", "middleware"])
def test_an_unexpected_error(
    auditor: Client, store: Store, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("secret")

    store.add("A1", 0, {}, 0)
    if place == "view":
        monkeypatch.setattr(timeline, "page", fail)
    elif place == "renderer":
        monkeypatch.setattr("history.api.answers.Json.render", fail)
    else:
        monkeypatch.setattr("django.middleware.common.CommonMiddleware.process_response", fail)
    found = error(auditor.get(BASE), 500, "internal_error")
    assert "secret" not in json.dumps(found)


@pytest.mark.parametrize("address", ["docs/", "schema/"])
@pytest.mark.parametrize("accept", ["application/pdf", "text/html", "*/*", "nonsense"])
def test_the_description_answers_whatever_is_accepted(
    auditor: Client, address: str, accept: str
) -> None:
    response = auditor.get(f"/api/{address}", headers={"Accept": accept})
    assert response.status_code == 200


@pytest.mark.parametrize(
    "address", [BASE, "/api/v1/search?q=1", "/api/v1/completeness", "/api/v1/no", "/api/schema/"]
)
def test_what_is_allowed_is_not_refused(auditor: Client, store: Store, address: str) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE", "TRACE"):
        answer = auditor.generic(method, address)
        assert answer.status_code == 405
        allowed = answer.headers["Allow"].split(", ")
        assert method not in allowed
    assert allowed == ["GET", "HEAD", "OPTIONS"]
    if "/no" not in address:
        store.add("A1", 0, {}, 0)
        for method in allowed:
            status = 204 if method == "OPTIONS" else 200
            assert auditor.generic(method, address).status_code == status


@pytest.mark.parametrize("call", ["", "/at?time=2026-01-01", "/versions/0", "/blame"])
@pytest.mark.parametrize("id", ["%00", "a%00"])
def test_no_id_has_a_nul(auditor: Client, call: str, id: str) -> None:
    found = error(auditor.get(f"/api/v1/history/product-instance/{id}{call}"), 400, "bad_parameter")
    assert (found["parameter"], found["message"]) == ("id", "id: содержит символ NUL")


@pytest.mark.parametrize(
    "path, status",
    [
        ("history/product-instance/\xff", "400"),
        ("history/product-instance/a\xc3b/at", "400"),
        ("applications/\xff/history", "400"),
        ("history/product-instance/%FF", "200"),
        ("history/product-instance/\xd1\x8b", "200"),
    ],
)
def test_bytes_that_are_no_text_are_no_id(
    auditor: Client, store: Store, path: str, status: str
) -> None:
    """Django makes the text "%FF" of the byte %FF, so this is asked past its test client."""
    store.add("%FF", 0, {}, 0)
    store.add("ы", 0, {}, 0)
    environ = auditor._base_environ(PATH_INFO=f"/api/v1/{path}", QUERY_STRING="")
    said: list[str] = []
    signals.request_started.disconnect(close_old_connections)
    try:
        body = keeping_raw_path(WSGIHandler())(environ, lambda line, _: said.append(line))
        text = b"".join(body)
    finally:
        signals.request_started.connect(close_old_connections)
    assert said[0].split()[0] == status, text
    assert (status == "200") == (b"UTF-8" not in text)


def test_an_id_that_looks_like_a_byte_is_found(auditor: Client, store: Store) -> None:
    store.add("%FF", 0, {}, 0)
    assert auditor.get("/api/v1/history/product-instance/%25FF").status_code == 200


@pytest.mark.parametrize(
    "time, zone",
    [
        ("9999-12-31T23:59:59", "America/New_York"),
        ("0001-01-01T00:00", "Europe/Moscow"),
        ("9999-12-31T23:59:59-05:00", "UTC"),
    ],
)
def test_a_moment_out_of_range_is_called_so(auditor: Client, time: str, zone: str) -> None:
    found = error(auditor.get(f"{BASE}/at", {"time": time, "tz": zone}), 400, "bad_parameter")
    assert found["parameter"] == "time"
    assert "вне лет с 1 по 9999" in found["message"]


@pytest.mark.parametrize("zone", ["Factory", "localtime", "posixrules", "posix/UTC", "right/UTC"])
def test_what_is_no_place_is_no_time_zone(auditor: Client, zone: str) -> None:
    assert error(auditor.get(BASE, {"tz": zone}), 400, "bad_parameter")["parameter"] == "tz"
