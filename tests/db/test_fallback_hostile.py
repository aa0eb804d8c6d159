"""An old service that is slow, broken or hostile costs its time limit, and shows nothing wrong."""

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

from history.fallback import client
from tests.consuming import until
from tests.db.replaced import use
from tests.db.store import Store, minute
from tests.db.test_fallback import API, get, numbers
from tests.old_service import Held, Hostile, OldService, send

VALUE = "VALUE-OF-SOMEBODY"
OF_ANOTHER = Held("B1", 0, minute(0), json.dumps({"rate": VALUE}))
GOOD = Held("A1", 0, minute(0), json.dumps({"rate": VALUE}))


@pytest.fixture
def mine(store: Store, old: OldService) -> OldService:
    """A1 has version 1 in the store; the old service is yet to be made hostile."""
    store.add("A1", 1, {"rate": "new"}, minute(1))
    return old


def page(*rows: str, more: str = "") -> str:
    return f'{{"status": "success", "data": {{"history": [{", ".join(rows)}]{more}}}}}'


def changed(**given: Any) -> str:
    """A good version with something else in it."""
    return page(json.dumps({**json.loads(GOOD.row()), **given}))


def without(name: str) -> str:
    return page(json.dumps({k: v for k, v in json.loads(GOOD.row()).items() if k != name}))


def says(body: str | bytes, status: int = 200, **headers: str) -> Hostile:
    return lambda handler: send(handler, status, body, **headers)


def endless(handler: BaseHTTPRequestHandler) -> None:
    """An answer without an end, as fast as it can be sent."""
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b" " * 1_000_000)


def drip(handler: BaseHTTPRequestHandler) -> None:
    """A byte every 50 ms: no single read takes long."""
    handler.send_response(200)
    handler.end_headers()
    for _ in range(600):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.05)


def nothing_compressed(handler: BaseHTTPRequestHandler) -> None:
    """Compressed bytes without an end, of which each piece holds nothing."""
    handler.send_response(200)
    handler.send_header("Content-Encoding", "gzip")
    handler.end_headers()
    while True:
        handler.wfile.write(gzip.compress(b""))
        time.sleep(0.01)


def silent(handler: BaseHTTPRequestHandler) -> None:
    time.sleep(5)


def cut(handler: BaseHTTPRequestHandler) -> None:
    send(handler, 200, page(GOOD.row())[:-30], Content_Length="99999")


def looping(handler: BaseHTTPRequestHandler) -> None:
    """Every page names the same next one."""
    send(handler, 200, page(GOOD.row(), more=', "nextPageToken": "v1:again"'))


_numbers = count()


def never_last(handler: BaseHTTPRequestHandler) -> None:
    """Every page is empty and names another next one."""
    send(handler, 200, page(more=f', "nextPageToken": "v1:{next(_numbers)}"'))


WRONG: dict[str, Hostile] = {
    "no JSON": says("<html>login</html>"),
    "an empty body": says(""),
    "a list": says("[]"),
    "not UTF-8": says(page(GOOD.row()).encode().replace(VALUE.encode(), b"\xff\xfe")),
    "brackets": says("[" * 1_000_000),
    "an error with 200": says('{"status": "error", "error": {"code": "x"}}'),
    "500": says(page(GOOD.row()), 500),
    "204": says("", 204),
    "401": says("{}", 401),
    "404 of a wrong address": says("not here", 404),
    "404 of an unknown kind": says('{"status": "error", "error": {"code": "unknown_entity"}}', 404),
    "compressed": says(b"\x1f\x8b", Content_Encoding="gzip"),
    "version as text": says(changed(version="0")),
    "version true": says(changed(version=True)),
    "version below 0": says(changed(version=-1)),
    "type of another kind": says(changed(type="MERGE")),
    "no moment": says(changed(updatedAt="yesterday")),
    "author as object": says(changed(author={"name": "x"})),
    "author with NUL": says(changed(author="a\0b")),
    "client with NUL": says(changed(clientId="a\0b")),
    "no snapshot": says(without("entity")),
    "a number of a gigabyte": says(page(GOOD.row().replace('"rate"', '"n": 1e999999999, "rate"'))),
    "many numbers of 131,072 digits": says(
        page(GOOD.row().replace('"rate"', f'"n": [{"1e131071, " * 600}0], "rate"'))
    ),
    "snapshot as text": says(changed(entity=VALUE)),
    "half a character": says(page(GOOD.row().replace(VALUE, VALUE + "\\ud800"))),
    "another document": says(page(OF_ANOTHER.row())),
    "another document among good ones": says(page(GOOD.row(), OF_ANOTHER.row())),
    "a long token": says(page(GOOD.row(), more=f', "nextPageToken": "{"x" * 9000}"')),
    "pages in a loop": looping,
    "pages without end": never_last,
    "cut off": cut,
    "endless": endless,
    "drip": drip,
    "nothing compressed": nothing_compressed,
    "silent": silent,
}


@pytest.mark.parametrize("name", WRONG)
def test_nothing_of_a_wrong_answer_is_shown(
    mine: OldService, support: Client, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    use(mine, monkeypatch, ANNALS_FALLBACK_SECONDS="0.4")
    mine.hostile = WRONG[name]
    answer = support.get(API)
    assert answer.status_code == 200
    assert VALUE not in answer.content.decode()
    data = answer.json()["data"]
    assert numbers(data) == [1]
    assert data["fallback"] == {"state": "failed", "olderVersionsMayBeMissing": True}
    assert data["history"][0]["olderVersions"] != "neverArrived"
    assert answer.headers["X-Annals-Fallback"] == "failed"
    assert int(answer.headers["Retry-After"]) > 0


def test_many_pages_together_are_cut_off(
    mine: OldService, support: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in range(40):
        mine.add("A1", version, {"text": "x" * 1_000}, minute(version))
    mine.page = 10
    monkeypatch.setattr(client, "MOST_BYTES", 30_000)
    assert get(support, API)["fallback"]["state"] == "failed"
    monkeypatch.setattr(client, "MOST_BYTES", 100_000)
    assert numbers(get(support, API)) == list(reversed(range(40)))


def test_a_redirect_is_not_followed(
    mine: OldService, support: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("the-token")
    file.chmod(0o600)
    use(mine, monkeypatch, ANNALS_FALLBACK_TOKEN_FILE=str(file))
    with OldService([GOOD]) as elsewhere:
        for status in (301, 302, 303, 307, 308):
            mine.hostile = says("", status, Location=f"{elsewhere.url}/api/v1/x")
            monkeypatch.setattr(client, "BREAKER", client.Breaker())
            assert numbers(get(support, API)) == [1]
        assert elsewhere.asked == []
    assert mine.tokens == ["Bearer the-token"] * 5


def test_neither_a_proxy_nor_netrc_gets_or_gives_a_token(
    mine: OldService, support: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login a password b\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    with OldService() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        get(support, API)
        assert (proxy.asked, mine.tokens) == ([], [None])


def test_an_id_does_not_lead_to_another_address(mine: OldService, support: Client) -> None:
    support.get("/api/v1/history/product-instance/..%2F..%2Fsecret")
    support.get("/api/v1/history/product-instance/%2E%2E")
    assert [path.split("?")[0] for path in mine.asked] == [
        "/api/v1/history/product-instance/..%2F..%2Fsecret"
    ]


def test_names_and_values_are_not_in_the_log(
    mine: OldService, support: Client, caplog: Any
) -> None:
    for name in ("another document", "author as object", "no JSON", "500"):
        mine.hostile = WRONG[name]
        get(support, API)
    mine.hostile = None
    assert "the old service: " in caplog.text
    lines = [each for each in caplog.messages if each.startswith("the old service: ")]
    assert not any(VALUE in each or "A1" in each or "B1" in each for each in lines)


def test_the_breaker_cuts_it_off_and_tries_again(
    mine: OldService, support: Client, own_breaker: client.Breaker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    mine.add("A1", 0, {"rate": "old"}, minute(0))
    mine.status = 503
    for _ in range(5):
        assert get(support, API)["fallback"]["state"] == "failed"
    assert len(mine.asked) == client.FAILURES
    monkeypatch.setattr(client, "PAUSE_SECONDS", 0.0)
    own_breaker.failed(time.monotonic())
    assert get(support, API)["fallback"]["state"] == "failed"  # the probe
    assert len(mine.asked) == client.FAILURES + 1
    mine.status = 200
    assert numbers(get(support, API)) == [1, 0]
    assert not own_breaker.open


@pytest.mark.parametrize("name", ["another document", "endless"])
def test_a_wrong_answer_cuts_nobody_off(
    mine: OldService, support: Client, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It is about one document, and who asks for that again and again harms nobody else."""
    monkeypatch.setattr(client, "MOST_BYTES", 100_000)
    mine.hostile = WRONG[name]
    for _ in range(5):
        get(support, API)
    assert len(mine.asked) == 5


def test_only_some_calls_at_a_time(
    mine: OldService, support: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(client, "_places", threading.Semaphore(0))
        assert get(support, API)["fallback"]["state"] == "failed"
    assert mine.asked == []


@pytest.fixture(autouse=True)
def all_places_are_free_again() -> Iterator[None]:
    """No call is left behind: what hung has ended."""
    yield
    until(lambda: client._places._value == client.PLACES, "a call did not end", 10)
