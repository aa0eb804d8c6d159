"""One connection of a client, and how slowly the client may send and read."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from typing import Any, Final

from waitress.channel import HTTPChannel
from waitress.task import WSGITask

from annals.serving.visit import VISIT, Visit

# A client that sends or reads at this rate, or faster, may take as long as it needs.
MIN_BYTES_A_SECOND: Final = 10_000
# SO_LINGER: what is not sent yet is dropped, and the client gets a reset.
RESET: Final = struct.pack("ii", 1, 0)


class Task(WSGITask):
    """Answers one request; the application finds its Visit in the environment."""

    def get_environment(self) -> dict[str, Any]:
        environ: dict[str, Any] = super().get_environment()
        environ[VISIT] = self.channel.visit
        return environ

    def execute(self) -> None:
        try:
            super().execute()
        except BaseException:
            self.channel.cut = self.wrote_header
            raise

    def set_close_on_finish(self) -> None:
        # waitress closes after each answer without a length. One without a body (304, 204) ends
        # with its headers.
        asked = self.request.headers.get("CONNECTION", "").lower()
        if self.has_body or self.version != "1.1" or asked == "close":
            super().set_close_on_finish()

    def build_response_header(self) -> bytes:
        # The next request on this connection would find nobody. One that is here is answered.
        if self.channel.server.stopped and len(self.channel.requests) == 1:
            self.request.headers["CONNECTION"] = "close"
        return bytes(super().build_response_header())


class Channel(HTTPChannel):
    """A connection. It is in one of three states: it waits for (the rest of) a request, a request
    is answered, or an answer is sent."""

    task_class = Task

    def __init__(self, *arguments: Any, **more: Any) -> None:
        self.visit = Visit()
        self._state = "waits"
        self.since = time.monotonic()  # since when it is in this state
        self._bytes = 0  # received or sent in this state
        self._moved = self.since  # when the last byte was received or sent
        self.cut = False  # an answer has begun and will not be completed
        super().__init__(*arguments, **more)

    @property
    def waits(self) -> bool:
        """Whether it waits for a request or for the rest of one."""
        return not self.requests and not self.total_outbufs_len

    def arrived(self) -> None:
        """A request is complete. Called before a thread answers it."""
        self.visit = Visit()
        self._begin("is answered")

    def expire(self, seconds: float) -> None:
        """Close the connection if its client is slower than MIN_BYTES_A_SECOND, after these
        seconds, or if the time of the visit is over. Called again and again."""
        state = "sends" if self.total_outbufs_len else "is answered" if self.requests else "waits"
        if state != self._state:
            self._begin(state)
        now = time.monotonic()
        lasted = now - self.since
        if self.requests and now > self.visit.until:
            self.handle_close()  # its thread may wait for the client to read
        elif state != "is answered" and lasted > seconds + self._bytes / MIN_BYTES_A_SECOND:
            self.handle_close()

    def silent(self, seconds: float) -> bool:
        """Whether it waits for a request, and nothing came or went for so long."""
        if not self.waits or time.monotonic() - self._moved < seconds:
            return False
        try:
            return not self.socket.recv(1, socket.MSG_PEEK)
        except OSError:  # there is nothing to read
            return True

    def received(self, data: bytes) -> bool:
        self._bytes += len(data)
        self._moved = time.monotonic()
        return bool(super().received(data))

    def send(self, data: bytes, do_close: bool = True) -> int:
        sent = int(super().send(data, do_close=do_close))
        self._bytes += sent
        self._moved = time.monotonic()
        return sent

    def handle_close(self) -> None:
        """Close it. A client that has a part of an answer only gets a reset: in HTTP/1.0 an answer
        without a length ends where the connection does."""
        # waitress closes a connection a second time where it finds two reasons in one turn.
        if self.socket is not None and (self.cut or self.requests or self.total_outbufs_len):
            with contextlib.suppress(OSError):
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        super().handle_close()
        self.visit.leave()

    def _begin(self, state: str) -> None:
        self._state, self.since, self._bytes = state, time.monotonic(), 0
