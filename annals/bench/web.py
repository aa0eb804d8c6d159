"""The production web server for benchmarks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import psutil

from annals.embedded.process import free_ports

HOST = "127.0.0.1"


@contextmanager
def web(
    environment: Mapping[str, str], *, quiet: bool = False
) -> Iterator[tuple[int, psutil.Process]]:
    """gunicorn as in production, just started: its port on HOST, and its main process. Ends it.
    quiet: its log is not shown."""
    [port] = free_ports([None])
    words = ["--config", "python:annals.server", "--bind", f"{HOST}:{port}", "annals.wsgi"]
    server = subprocess.Popen(  # noqa: S603 - our own server
        [sys.executable, "-m", "gunicorn", *words],
        env=dict(environment), stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL if quiet else None,
    )  # fmt: skip
    try:
        yield port, psutil.Process(server.pid)
    finally:
        server.terminate()
        server.wait(30)
