"""Connections of the web as clients may use and misuse them."""

from __future__ import annotations

import http.client
import os
import signal
import threading
from collections.abc import Iterator

import pytest

from annals.embedded.postgres import Postgres
from annals.serving.listener import CONNECTIONS
from tests.attack.web import LOGIN, Answer, Site, Web, close, request, still_open
from tests.consuming import until
from tests.processes import own_database, server

__all__ = ["server"]

ID = "connections"
PATH = f"/api/v1/history/product-instance/{ID}"

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def site(server: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with own_database(server) as database:
        made = Site(tmp_path_factory.mktemp("connections"), database.url)
        made.prepare()
        made.store(ID, 100, 100, 640)
        yield made


@pytest.fixture(scope="module")
def web(site: Site) -> Iterator[Web]:
    with site.serve() as made:
        yield made


def test_many_requests_on_one_connection(web: Web) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=30)
    given = {"Authorization": LOGIN}
    for method, path, status in [
        ("GET", f"{PATH}?pageSize=1", 200),
        ("HEAD", f"{PATH}?pageSize=1", 200),
        ("GET", "/nothing", 404),
        ("POST", PATH, 405),
        ("HEAD", "/nothing", 404),
        ("OPTIONS", PATH, 204),
        ("GET", f"{PATH}?pageSize=2", 200),
    ] * 2:
        connection.request(method, path, headers=given)
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == status
        assert bool(body) == (method not in ("HEAD", "OPTIONS"))
        assert answer.getheader("Server") is None
    connection.close()


OTHER = "/api/v1/history/product-instance/other"


@pytest.mark.parametrize(
    "name, value, path",
    [
        ("SCRIPT_NAME", OTHER, f"{OTHER}{PATH}"),
        ("Script_Name", OTHER, f"{OTHER}{PATH}"),
        ("PATH_INFO", PATH, "/nothing"),
    ],
)
def test_no_header_is_the_address(name: str, value: str, path: str, web: Web) -> None:
    """gunicorn takes these from a peer on this machine; the journal would then have another address
    than the one that was asked for."""
    assert web.get(path, headers={name: value}).status == 404


def test_two_requests_at_once_are_answered_in_order(web: Web) -> None:
    made = web.connect()
    made.sendall(request(f"{PATH}?pageSize=1") + request("/nothing", "Connection: close"))
    found = b""
    while part := made.recv(65536):
        found += part
    close([made])
    assert found.index(b"HTTP/1.1 200 OK") < found.index(b"HTTP/1.1 404 Not Found")


def test_a_form_may_come_in_chunks(web: Web) -> None:
    made = web.connect()
    made.sendall(
        b"POST /admin/login/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b"Content-Type: application/x-www-form-urlencoded\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"4\r\nuser\r\n6\r\nname=a\r\n0\r\n\r\n"
    )
    assert made.recv(65536).startswith(b"HTTP/1.1 403 ")  # no CSRF token
    close([made])


@pytest.mark.parametrize(
    "text, status",
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 40_000 + b"\r\n\r\n", b"431"),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n", b"413"),
    ],
)
def test_what_is_no_request_is_refused(web: Web, text: bytes, status: bytes) -> None:
    made = web.connect()
    made.sendall(text)
    assert made.recv(65536).split()[1] == status
    close([made])


def test_the_connection_that_waits_longest_makes_room(web: Web) -> None:
    """More connections than two processes keep: those that send nothing go, a request is served."""
    held = [web.connect() for _ in range(2 * CONNECTIONS + 100)]
    answers = [web.get("/healthz", timeout=10).status for _ in range(20)]
    assert set(answers) == {200}
    left = still_open(held)
    assert CONNECTIONS <= left <= 2 * CONNECTIONS
    close(held)


def test_at_the_end_of_a_process_what_has_arrived_is_answered(site: Site) -> None:
    with site.serve() as web:
        found: list[Answer] = []
        with web.locked("product_instance_aud"):
            asking = threading.Thread(target=lambda: found.append(web.get(PATH, timeout=30)))
            asking.start()
            silent = [web.connect()]
            until(lambda: web.waiting() == 1, "the question does not wait")
            os.kill(web.pid, signal.SIGTERM)
            until(lambda: still_open(silent) == 0, "a connection that waits is not closed")
            assert web.waiting() == 1
        asking.join()
        close(silent)
        assert [answer.status for answer in found] == [200]


def test_what_cannot_be_answered_at_the_end_is_cancelled(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GUNICORN_CMD_ARGS", "--graceful-timeout=3")
    with site.serve() as web, web.locked("product_instance_aud"):
        held = [web.ask(PATH)]
        until(lambda: web.waiting() == 1, "the question does not wait")
        os.kill(web.pid, signal.SIGTERM)
        until(lambda: web.waiting() == 0, "the statement goes on without its process")
        close(held)
