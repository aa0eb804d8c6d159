"""The loop of a web process, with an application of its own: who is slow is closed."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from ipaddress import ip_network
from typing import Any

import pytest
from waitress import wasyncore

from annals.serving import channel
from annals.serving.listener import Listener, Threads
from annals.serving.turns import Clients

BODY = b"a" * (8 << 20)  # more than the system takes from a process for a client that does not read
ASK = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


def broken() -> Iterator[bytes]:
    yield b"a part"
    raise RuntimeError("the answer cannot go on")


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    if environ["PATH_INFO"] == "/304":
        start_response("304 Not Modified", [])
        return []
    if environ["PATH_INFO"] == "/broken":
        start_response("200 OK", [])
        return broken()
    start_response("200 OK", [("Content-Length", str(len(BODY)))])
    return [BODY]


class Loop:
    """A listener whose loop the test turns, and clients."""

    def __init__(self) -> None:
        self.map: dict[int, Any] = {}
        self.threads = Threads(2)
        listening = socket.create_server(("127.0.0.1", 0))
        self.address = listening.getsockname()
        self.listener = Listener(application, self.map, self.threads, listening, 60.0)
        self.clients: list[socket.socket] = []

    def client(self, text: bytes = b"") -> socket.socket:
        made = socket.create_connection(self.address)
        made.sendall(text)
        self.clients.append(made)
        return made

    def until(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < end
            wasyncore.loop(0.01, use_poll=True, map=self.map, count=1)

    @property
    def channels(self) -> list[channel.Channel]:
        return list(self.listener.active_channels.values())

    @property
    def unread(self) -> int:
        return sum(each.total_outbufs_len > 0 for each in self.channels)

    def close(self) -> None:
        self.threads.shutdown(5)
        for client in self.clients:
            client.close()
        for each in self.channels:
            each.handle_close()
        wasyncore.close_all(self.map)


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()


def test_answers_that_are_not_read_have_a_limit_together(loop: Loop) -> None:
    first = loop.client(ASK)
    loop.until(lambda: loop.unread == 1)
    for count in (2, 3):
        loop.client(ASK)
        loop.until(lambda count=count: loop.unread == count)  # type: ignore[misc]
    oldest = min(loop.channels, key=lambda each: each.since)
    waiting = sum(each.total_outbufs_len for each in loop.channels)
    loop.listener._forget_unread(waiting)
    assert len(loop.channels) == 3
    loop.listener._forget_unread(waiting - 1)
    assert len(loop.channels) == 2
    assert oldest not in loop.channels
    assert oldest.addr == first.getsockname()


@pytest.mark.parametrize(
    "mine",
    [
        (b"/admin/", b"Cookie: sessionid=mine; other=%d", b"Cookie: sessionid=theirs"),
        (b"/admin/", b"X-Other: %d", b"Cookie: sessionid=theirs"),
        (b"/api/v1/x", b"Authorization: Bearer mine\r\nX: %d", b"Authorization: Bearer theirs"),
        (b"/admin/", b"Cookie: sessionid=mine\r\nAuthorization: Bearer %d", b"Cookie: sessionid=b"),
        (b"/api/", b"Cookie: sessionid=mine\r\nAuthorization: No %d", b"Cookie: sessionid=b"),
        (b"/api/", b"Authorization: Bearer a\r\nCookie: sessionid=%d", b"Cookie: sessionid=b"),
    ],
)
def test_one_client_leaves_threads_to_others(
    loop: Loop, mine: tuple[bytes, bytes, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many requests it has, and whatever it adds to them."""
    begun, over = [], threading.Event()

    def hold(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        begun.append(environ["PATH_INFO"])
        if "QUERY_STRING" in environ and environ["QUERY_STRING"] == "hold":
            over.wait(30)
        start_response("200 OK", [("Content-Length", "2")])
        return [b"ok"]

    monkeypatch.setattr(loop.listener, "application", hold)
    path, own, other = mine
    head = b"GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n"
    try:
        for number in range(6):
            loop.client(head % (path + b"?hold", own.replace(b"%d", b"%d" % number)))
        loop.until(lambda: len(loop.channels) == 6 and begun)
        loop.until(lambda: all(each.requests for each in loop.channels))
        asking = loop.client(head % (path, other))
        asking.setblocking(False)
        loop.until(lambda: answered(asking))
        assert len(begun) == 2
    finally:
        over.set()
    loop.until(lambda: len(begun) == 7)  # the rest has its turn, one after the other


def test_who_is_one_client() -> None:
    """Behind a trusted proxy each address is one; else only the other end of the connection."""
    trusting = Clients(proxies=[ip_network("10.0.0.0/8")])
    one, other = {"X_FORWARDED_FOR": "1.1.1.1"}, {"X_FORWARDED_FOR": "2.2.2.2"}
    assert trusting.of("/", one, "10.1.1.1") != trusting.of("/", other, "10.1.1.1")
    assert trusting.of("/", one, "11.1.1.1") == trusting.of("/", other, "11.1.1.1")
    assert trusting.of("/", {}, "2001:db8::1") == trusting.of("/", {}, "2001:db8::2")
    assert trusting.of("/", {"COOKIE": "sessionid="}, "1.1.1.1") == trusting.of("/", {}, "1.1.1.1")


def answered(client: socket.socket) -> bool:
    try:
        return client.recv(1 << 16).endswith(b"ok")
    except BlockingIOError:
        return False


def test_who_sends_or_reads_nothing_is_closed(loop: Loop) -> None:
    loop.client()
    loop.client(ASK[:20])
    loop.client(ASK)
    loop.until(lambda: len(loop.channels) == 3 and loop.unread == 1)
    for each in loop.channels:
        each.expire(60.0)
    assert len(loop.channels) == 3
    for each in loop.channels:
        each.since -= 1e6
        each.expire(60.0)
    assert loop.channels == []


def test_who_reads_is_not_closed(loop: Loop) -> None:
    reader = loop.client(ASK)
    loop.until(lambda: loop.unread == 1)
    reader.setblocking(False)
    read = 0

    def some() -> bool:
        nonlocal read
        with contextlib.suppress(BlockingIOError):
            read += len(reader.recv(1 << 20))
        for each in loop.channels:
            each.expire(60.0)
        return read > len(BODY)

    loop.until(some)
    assert len(loop.channels) == 1


def test_an_answer_without_a_body_leaves_the_connection_open(loop: Loop) -> None:
    ask = ASK.replace(b"/ ", b"/304 ")
    client = loop.client(ask + ask)
    client.setblocking(False)
    read = bytearray()

    def both() -> bool:
        with contextlib.suppress(BlockingIOError):
            read.extend(client.recv(1 << 20))
        return read.count(b"\r\n\r\n") == 2

    loop.until(both)
    assert read.count(b"HTTP/1.1 304 Not Modified\r\n") == 2
    assert b"close" not in read
    assert len(loop.channels) == 1


def test_a_request_that_is_answered_may_take_long(loop: Loop) -> None:
    """That is for the deadline of the request, not for the connection."""
    loop.threads.usual.set_thread_count(0)  # nobody answers
    loop.client(ASK)
    loop.until(lambda: [each for each in loop.channels if each.requests])
    (busy,) = loop.channels
    busy.expire(60.0)
    busy.since -= 1e6
    busy.expire(60.0)
    assert loop.channels == [busy]


def test_a_visit_that_is_over_is_closed(loop: Loop) -> None:
    loop.threads.usual.set_thread_count(0)  # nobody answers
    loop.client(ASK)
    loop.until(lambda: [each for each in loop.channels if each.requests])
    (busy,) = loop.channels
    busy.visit.until = 0.0
    busy.expire(60.0)
    assert loop.channels == []


def test_at_the_end_what_was_sent_is_answered(loop: Loop) -> None:
    """A request that nobody has read yet, and one on a connection that nobody has taken yet."""
    known = loop.client()
    loop.until(lambda: len(loop.channels) == 1)
    known.sendall(ASK)
    fresh = loop.client(ASK)
    loop.listener.stop()
    assert len(loop.channels) == 2
    answers = {known: b"", fresh: b""}
    reading = {known, fresh}

    def read() -> bool:
        loop.listener.stop()
        ended = set()
        for client in reading:
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                part = client.recv(1 << 20)
                answers[client] += part
                if not part:
                    ended.add(client)
        reading.difference_update(ended)
        return not reading

    loop.until(read)
    assert loop.channels == []
    for answer in answers.values():
        header, _, body = answer.partition(b"\r\n\r\n")
        assert b"Connection: close" in header.split(b"\r\n")
        assert len(body) == len(BODY)


def test_at_the_end_who_sends_nothing_is_closed(loop: Loop) -> None:
    loop.client()
    loop.client(ASK[:20])
    loop.until(lambda: len(loop.channels) == 2)

    def stopped() -> bool:
        loop.listener.stop()
        return not loop.channels

    loop.until(stopped)


def test_who_gets_a_part_of_an_answer_only_gets_a_reset(loop: Loop) -> None:
    """In HTTP/1.0 the answer would seem complete otherwise: it ends with the connection."""
    client = loop.client(b"GET /broken HTTP/1.0\r\n\r\n")
    client.setblocking(False)

    def ended() -> bool:
        with contextlib.suppress(BlockingIOError):
            return not client.recv(1 << 20)
        return False

    with pytest.raises(ConnectionResetError):
        loop.until(ended)


def test_a_connection_may_be_closed_twice(loop: Loop) -> None:
    loop.threads.usual.set_thread_count(0)  # nobody answers
    loop.client(ASK)
    loop.until(lambda: [each for each in loop.channels if each.requests])
    (busy,) = loop.channels
    busy.handle_close()
    busy.handle_close()
    assert loop.channels == []
