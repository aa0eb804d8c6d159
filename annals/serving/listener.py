"""A listening socket: takes connections, and gives complete requests to the threads."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from waitress.adjustments import Adjustments
from waitress.server import TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher

from annals.serving.channel import Channel
from annals.serving.turns import Clients, Turns

Application = Callable[..., Iterable[bytes]]

# Per process: each costs a file handle, of which a process has 1,024 where nobody raised that.
CONNECTIONS: Final = 800
HEADER_BYTES: Final = 32_768  # one page token has up to 6,000, the path of a field as many
BODY_BYTES: Final = 10 << 20
# What waits to be sent is in memory up to the first number, in a temporary file up to the second;
# then the thread that writes waits.
MEMORY_BYTES: Final = 1 << 20
FILE_BYTES: Final = 64 << 20
# What waits to be sent to all clients together.
UNREAD_BYTES: Final = 256 << 20
# When the process ends: a client that sends nothing for so long had nothing under way.
SILENT_S: Final = 1.0
# Answered by a thread of its own: it shows that the process answers, however busy it is.
PROBE: Final = "/healthz"


def adjustments(sockets: list[socket.socket]) -> Adjustments:
    return Adjustments(
        sockets=sockets,
        ident=None,
        connection_limit=2 * CONNECTIONS,  # never reached: Listener makes room before
        channel_request_lookahead=1,  # else a client that leaves would go unnoticed
        clear_untrusted_proxy_headers=False,  # annals.access.address decides whom to trust
        max_request_header_size=HEADER_BYTES,
        max_request_body_size=BODY_BYTES,
        outbuf_overflow=MEMORY_BYTES,
        inbuf_overflow=MEMORY_BYTES,
        outbuf_high_watermark=FILE_BYTES,
        cleanup_interval=1,
        log_socket_errors=False,
        asyncore_use_poll=True,
    )


class Threads:
    """The threads that answer requests, and one for the probe. One client has half of them at most,
    so that a request of another one never waits for all of its."""

    def __init__(self, count: int, clients: Clients | None = None) -> None:
        self.usual, self.probe = ThreadedTaskDispatcher(), ThreadedTaskDispatcher()
        self.usual.set_thread_count(count)
        self.probe.set_thread_count(1)
        self._clients = clients or Clients()
        self._turns = Turns(self.usual.add_task, max(1, count // 2))

    def add_task(self, channel: Channel) -> None:
        path = getattr(channel.requests[0], "path", "")  # what is no request has none
        if path == PROBE:
            self.probe.add_task(channel)
            return
        headers = getattr(channel.requests[0], "headers", {})
        peer = str(channel.addr[0]) if isinstance(channel.addr, tuple) else ""
        self._turns.add(channel, self._clients.of(path, headers, peer))

    def shutdown(self, timeout: float) -> None:
        self._turns.cancel()
        for each in (self.probe, self.usual):
            each.shutdown(timeout=timeout)


class Listener(TcpWSGIServer):
    """One listening socket. seconds: how long a client may take to send a request or to read an
    answer, if it is slower than MIN_BYTES_A_SECOND."""

    channel_class = Channel

    def __init__(
        self,
        application: Application,
        connections: dict[int, Any],
        threads: Threads,
        socket: socket.socket,
        seconds: float,
    ) -> None:
        self.seconds = seconds
        self.stopped = False
        self._stopped_at = math.inf
        super().__init__(
            without_body_for_head(application),
            connections,
            True,
            socket,
            dispatcher=threads,
            adj=adjustments([socket]),
            bind_socket=False,
            sockinfo=(socket.family, socket.type, socket.proto, socket.getsockname()),
        )

    def add_task(self, channel: Channel) -> None:
        channel.arrived()
        super().add_task(channel)

    def handle_accept(self) -> None:
        if len(self.active_channels) >= CONNECTIONS:
            self._make_room()
        super().handle_accept()

    def _make_room(self) -> None:
        """Close the connection that has waited longest for (the rest of) a request."""
        found = list(self.active_channels.values())
        waiting = [channel for channel in found if channel.waits] or found
        min(waiting, key=lambda channel: channel.since).handle_close()

    def maintenance(self, now: float) -> None:  # noqa: ARG002 - waitress' signature
        for channel in list(self.active_channels.values()):
            channel.expire(self.seconds)
        self._forget_unread(UNREAD_BYTES)

    def _forget_unread(self, most: int) -> None:
        """Close the connections that have read their answer for longest, until at most so many
        bytes wait to be sent."""
        found = [each for each in self.active_channels.values() if each.total_outbufs_len]
        waiting = sum(each.total_outbufs_len for each in found)
        for channel in sorted(found, key=lambda each: each.since):
            if waiting <= most:
                return
            waiting -= channel.total_outbufs_len
            channel.handle_close()

    def stop(self) -> None:
        """Take no more connections than the system has accepted. Call it again and again: it closes
        those that have been silent for SILENT_S since the first call."""
        if not self.stopped:
            self.stopped = True
            self._stopped_at = time.monotonic()
            # Where no other process has this socket, the system resets what nobody takes.
            for _ in range(CONNECTIONS):
                before = len(self.active_channels)
                self.handle_accept()
                if len(self.active_channels) <= before:
                    break
            self.del_channel()
            self.socket.close()
        if time.monotonic() - self._stopped_at < SILENT_S:
            return
        for channel in list(self.active_channels.values()):
            if channel.silent(SILENT_S):
                channel.handle_close()

    def abort(self) -> None:
        """Close all connections."""
        for channel in list(self.active_channels.values()):
            channel.handle_close()

    @property
    def busy(self) -> bool:
        """Whether a request is being answered, or an answer sent."""
        return bool(self.active_channels)


def without_body_for_head(application: Application) -> Application:
    """The same application, which may leave the body in the answer to HEAD, as Django does."""

    def answering(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        found = application(environ, start_response)
        if environ["REQUEST_METHOD"] != "HEAD":
            return found
        close = getattr(found, "close", None)
        if close is not None:
            close()
        return ()

    return answering
