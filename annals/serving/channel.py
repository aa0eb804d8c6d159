"""One connection of a client, and how slowly the client may send and read."""

from __future__ import annotations

import time
from typing import Any, Final

from waitress.channel import HTTPChannel
from waitress.task import WSGITask

from annals.serving.visit import VISIT, Visit

# A client that sends or reads at this rate, or faster, may take as long as it needs.
MIN_BYTES_A_SECOND: Final = 10_000


class Task(WSGITask):
    """Answers one request; the application finds its Visit in the environment."""

    def get_environment(self) -> dict[str, Any]:
        environ: dict[str, Any] = super().get_environment()
        environ[VISIT] = self.channel.visit
        return environ


class Channel(HTTPChannel):
    """A connection. It is in one of three states: it waits for (the rest of) a request, a request
    is answered, or an answer is sent."""

    task_class = Task

    def __init__(self, *arguments: Any, **more: Any) -> None:
        self.visit = Visit()
        self._state = "waits"
        self.since = time.monotonic()  # since when it is in this state
        self._bytes = 0  # received or sent in this state
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
        seconds. Called again and again."""
        state = "sends" if self.total_outbufs_len else "is answered" if self.requests else "waits"
        if state != self._state:
            self._begin(state)
        lasted = time.monotonic() - self.since
        if state != "is answered" and lasted > seconds + self._bytes / MIN_BYTES_A_SECOND:
            self.handle_close()

    def received(self, data: bytes) -> bool:
        self._bytes += len(data)
        return bool(super().received(data))

    def send(self, data: bytes, do_close: bool = True) -> int:
        sent = int(super().send(data, do_close=do_close))
        self._bytes += sent
        return sent

    def handle_close(self) -> None:
        super().handle_close()
        self.visit.leave()

    def _begin(self, state: str) -> None:
        self._state, self.since, self._bytes = state, time.monotonic(), 0
