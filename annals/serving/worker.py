"""A worker process of gunicorn that serves with waitress.

gunicorn has the processes: it starts, restarts and ends them and owns the listening sockets.
waitress has the connections: one thread reads and writes all of them, so that a client that sends
or reads slowly, or not at all, takes no thread from others (docs/decisions/0027).
"""

from __future__ import annotations

import os
import time
from typing import Any, Final

from gunicorn.workers.base import Worker as GunicornWorker
from waitress import wasyncore

from annals.serving.listener import Listener, Threads
from annals.serving.turns import Clients

LOOK_S: Final = 0.5
# What is still answered when the time to end is over gets so long to be stopped.
STOP_S: Final = 1.0


class Worker(GunicornWorker):
    """gunicorn's `worker_class`. Its `threads` and `graceful_timeout` count here too."""

    def run(self) -> None:
        # Django is set up by now, and not when gunicorn imports this module.
        from django.conf import settings

        self.connections: dict[int, Any] = {}
        clients = Clients(settings.SESSION_COOKIE_NAME, settings.TRUSTED_PROXIES)
        threads = Threads(self.cfg.threads, clients)
        seconds = settings.ANNALS.client_seconds
        # gunicorn wraps its sockets.
        self.listeners = [
            Listener(self.wsgi, self.connections, threads, each.sock, seconds)
            for each in self.sockets
        ]
        while self.alive and self.ppid == os.getppid():
            self._turn()
        self._end(threads)

    def _turn(self) -> None:
        self.notify()
        wasyncore.loop(LOOK_S, use_poll=True, map=self.connections, count=1)

    def _end(self, threads: Threads) -> None:
        """Answer what has arrived, within graceful_timeout; then stop the rest."""
        from annals.serving import watch

        end = time.monotonic() + self.cfg.graceful_timeout - 2 * STOP_S
        while time.monotonic() < end:
            for listener in self.listeners:
                listener.stop()
            if not any(listener.busy for listener in self.listeners):
                break
            self._turn()
        watch.stop_all()
        threads.shutdown(STOP_S)
        for listener in self.listeners:
            listener.abort()
