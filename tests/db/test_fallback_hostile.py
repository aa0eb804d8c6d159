"""A slow, broken or hostile old service delays an answer by at most the configured time limit, and
cannot put false data into the answer."""

import gzip
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from history.timeline.fallback import client
from tests.consuming import wait_until
from tests.db.old_service_fixtures import use_old_service
from tests.db.store import Store, minute
from tests.db.test_fallback import API, get_data, list_numbers
from tests.old_service import Hostile, OldServiceServer, OldVersion, send_answer

VALUE = "VALUE-OF-SOMEBODY"
OF_ANOTHER = OldVersion("B1", 0, minute(0), json.dumps({"rate": VALUE}))
GOOD = OldVersion("A1", 0, minute(0), json.dumps({"rate": VALUE}))


@pytest.fixture
def stored_application(store: Store, old: OldServiceServer) -> OldServiceServer:
    """Store version 1 of A1, and return the old service, which the test makes hostile."""
    store.add("A1", 1, {"rate": "new"}, minute(1))
    return old


def make_page(*rows: str, more: str = "") -> str:
    return f'{{"status": "success", "data": {{"history": [{", ".join(rows)}]{more}}}}}'


def change_version(**fields: Any) -> str:
    """Return a page with a valid version in which these fields are changed."""
    return make_page(json.dumps({**json.loads(GOOD.to_json()), **fields}))


def drop_field(name: str) -> str:
    return make_page(json.dumps({k: v for k, v in json.loads(GOOD.to_json()).items() if k != name}))


def answer_with(body: str | bytes, status: int = 200, **headers: str) -> Hostile:
    return lambda handler: send_answer(handler, status, body, **headers)


def answer_endlessly(handler: BaseHTTPRequestHandler) -> None:
    """Send an endless answer, as fast as possible."""
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b" " * 1_000_000)


def answer_slowly(handler: BaseHTTPRequestHandler) -> None:
    """Send a byte every 50 ms, so that no single read takes long."""
    handler.send_response(200)
    handler.end_headers()
    for _ in range(600):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.05)


def answer_empty_compressed(handler: BaseHTTPRequestHandler) -> None:
    """Send endless gzip data that decompresses to nothing."""
    handler.send_response(200)
    handler.send_header("Content-Encoding", "gzip")
    handler.end_headers()
    while True:
        handler.wfile.write(gzip.compress(b""))
        time.sleep(0.01)


def answer_nothing(handler: BaseHTTPRequestHandler) -> None:
    time.sleep(5)


def answer_cut_off(handler: BaseHTTPRequestHandler) -> None:
    send_answer(handler, 200, make_page(GOOD.to_json())[:-30], Content_Length="99999")


def answer_in_loop(handler: BaseHTTPRequestHandler) -> None:
    """Send a page that names the same next page each time."""
    send_answer(handler, 200, make_page(GOOD.to_json(), more=', "nextPageToken": "v1:again"'))


_numbers = count()


def answer_empty_pages(handler: BaseHTTPRequestHandler) -> None:
    """Send an empty page that names a new next page each time."""
    send_answer(handler, 200, make_page(more=f', "nextPageToken": "v1:{next(_numbers)}"'))


WRONG: dict[str, Hostile] = {
    "no JSON": answer_with("<html>login</html>"),
    "an empty body": answer_with(""),
    "a list": answer_with("[]"),
    "not UTF-8": answer_with(
        make_page(GOOD.to_json()).encode().replace(VALUE.encode(), b"\xff\xfe")
    ),
    "brackets": answer_with("[" * 1_000_000),
    "an error with 200": answer_with('{"status": "error", "error": {"code": "x"}}'),
    "500": answer_with(make_page(GOOD.to_json()), 500),
    "204": answer_with("", 204),
    "401": answer_with("{}", 401),
    "404 of a wrong address": answer_with("not here", 404),
    "404 of an unknown kind": answer_with(
        '{"status": "error", "error": {"code": "unknown_entity"}}', 404
    ),
    "compressed": answer_with(b"\x1f\x8b", Content_Encoding="gzip"),
    "version as text": answer_with(change_version(version="0")),
    "version true": answer_with(change_version(version=True)),
    "version below 0": answer_with(change_version(version=-1)),
    "type of another kind": answer_with(change_version(type="MERGE")),
    "no moment": answer_with(change_version(updatedAt="yesterday")),
    "author as object": answer_with(change_version(author={"name": "x"})),
    "author with NUL": answer_with(change_version(author="a\0b")),
    "client with NUL": answer_with(change_version(clientId="a\0b")),
    "no snapshot": answer_with(drop_field("entity")),
    "a number of a gigabyte": answer_with(
        make_page(GOOD.to_json().replace('"rate"', '"n": 1e999999999, "rate"'))
    ),
    "many numbers of 131,072 digits": answer_with(
        make_page(GOOD.to_json().replace('"rate"', f'"n": [{"1e131071, " * 600}0], "rate"'))
    ),
    "snapshot as text": answer_with(change_version(entity=VALUE)),
    "half a character": answer_with(make_page(GOOD.to_json().replace(VALUE, VALUE + "\\ud800"))),
    "another document": answer_with(make_page(OF_ANOTHER.to_json())),
    "another document among good ones": answer_with(
        make_page(GOOD.to_json(), OF_ANOTHER.to_json())
    ),
    "a long token": answer_with(
        make_page(GOOD.to_json(), more=f', "nextPageToken": "{"x" * 9000}"')
    ),
    "pages in a loop": answer_in_loop,
    "pages without end": answer_empty_pages,
    "cut off": answer_cut_off,
    "endless": answer_endlessly,
    "drip": answer_slowly,
    "nothing compressed": answer_empty_compressed,
    "silent": answer_nothing,
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_answer_of_old_service_is_not_shown_and_counts_as_failed(
    stored_application: OldServiceServer,
    support: Client,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    use_old_service(stored_application, monkeypatch, ANNALS_FALLBACK_SECONDS="0.4")
    stored_application.hostile = WRONG[name]
    answer = support.get(API)
    assert answer.status_code == 200
    assert VALUE not in answer.content.decode()
    data = answer.json()["data"]
    assert list_numbers(data) == [1]
    assert data["fallback"] == {"state": "failed", "olderVersionsMayBeMissing": True}
    assert data["history"][0]["olderVersions"] != "neverArrived"
    assert answer.headers["X-Annals-Fallback"] == "failed"
    assert int(answer.headers["Retry-After"]) > 0


def test_answer_of_old_service_with_too_many_pages_is_cut_off(
    stored_application: OldServiceServer, support: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in range(40):
        stored_application.add_version("A1", version, {"text": "x" * 1_000}, minute(version))
    stored_application.page = 10
    monkeypatch.setattr(client, "MAX_TIMELINE_BYTES", 30_000)
    assert get_data(support, API)["fallback"]["state"] == "failed"
    monkeypatch.setattr(client, "MAX_TIMELINE_BYTES", 100_000)
    assert list_numbers(get_data(support, API)) == list(reversed(range(40)))


def test_redirect_of_old_service_is_not_followed(
    stored_application: OldServiceServer,
    support: Client,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    file = tmp_path / "token"
    file.write_text("the-token")
    file.chmod(0o600)
    use_old_service(stored_application, monkeypatch, ANNALS_FALLBACK_TOKEN_FILE=str(file))
    with OldServiceServer([GOOD]) as elsewhere:
        for status in (301, 302, 303, 307, 308):
            stored_application.hostile = answer_with(
                "", status, Location=f"{elsewhere.url}/api/v1/x"
            )
            client.BREAKER.reset()
            assert list_numbers(get_data(support, API)) == [1]
        assert elsewhere.requests == []
    assert stored_application.tokens == ["Bearer the-token"] * 5


def test_calls_to_old_service_ignore_proxy_and_netrc_settings(
    stored_application: OldServiceServer,
    support: Client,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login a password b\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    with OldServiceServer() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        get_data(support, API)
        assert (proxy.requests, stored_application.tokens) == ([], [None])


def test_document_id_cannot_change_address_of_call_to_old_service(
    stored_application: OldServiceServer, support: Client
) -> None:
    support.get("/api/v1/history/product-instance/..%2F..%2Fsecret")
    support.get("/api/v1/history/product-instance/%2E%2E")
    assert [path.split("?")[0] for path in stored_application.requests] == [
        "/api/v1/history/product-instance/..%2F..%2Fsecret"
    ]


def test_log_has_no_ids_or_values_that_old_service_sent(
    stored_application: OldServiceServer, support: Client, caplog: Any
) -> None:
    for name in ("another document", "author as object", "no JSON", "500"):
        stored_application.hostile = WRONG[name]
        get_data(support, API)
    stored_application.hostile = None
    assert "a timeline lacks versions of the old service: " in caplog.text
    lines = [
        item
        for item in caplog.messages
        if item.startswith("a timeline lacks versions of the old service: ")
    ]
    assert not any(VALUE in item or "A1" in item or "B1" in item for item in lines)


def test_circuit_breaker_opens_after_failures_and_closes_after_a_successful_retry(
    stored_application: OldServiceServer,
    support: Client,
    own_breaker: client.CircuitBreaker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored_application.add_version("A1", 0, {"rate": "old"}, minute(0))
    stored_application.status = 503
    for _ in range(5):
        assert get_data(support, API)["fallback"]["state"] == "failed"
    assert len(stored_application.requests) == client.FAILURES_TO_OPEN
    monkeypatch.setattr(client, "PAUSE_SECONDS", 0.0)
    own_breaker.note_failure(time.monotonic())
    # The trial call after the pause fails, so the breaker stays open.
    assert get_data(support, API)["fallback"]["state"] == "failed"
    assert len(stored_application.requests) == client.FAILURES_TO_OPEN + 1
    stored_application.status = 200
    assert list_numbers(get_data(support, API)) == [1, 0]
    assert not own_breaker.is_open


@pytest.mark.parametrize("name", ["another document", "endless"])
def test_wrong_answer_of_old_service_does_not_open_circuit_breaker(
    stored_application: OldServiceServer,
    support: Client,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    """The answer is wrong for one document. The old service must still be called for other
    documents."""
    monkeypatch.setattr(client, "MAX_TIMELINE_BYTES", 100_000)
    stored_application.hostile = WRONG[name]
    for _ in range(5):
        get_data(support, API)
    assert len(stored_application.requests) == 5


def test_number_of_concurrent_calls_to_old_service_is_limited(
    stored_application: OldServiceServer, support: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(client, "CALL_PLACES", threading.Semaphore(0))
        assert get_data(support, API)["fallback"]["state"] == "failed"
    assert stored_application.requests == []


@pytest.fixture(autouse=True)
def check_all_places_are_free() -> Iterator[None]:
    """Check after the test that every call to the old service has ended, also calls that hung."""
    yield
    wait_until(lambda: client.CALL_PLACES._value == client.MAX_CALLS, "a call did not end", 120)
