"""Configuration of gunicorn: `gunicorn --config python:annals.server annals.wsgi`.

Threads, not asyncio: every request waits for PostgreSQL, and Django's database layer is
synchronous. Options on gunicorn's command line override these. Without `--bind` it listens on the
loopback address: a proxy has to be in front of it (docs/operations.md).
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from annals import env
from annals.observe import logs
from annals.start import checked_settings, refuse_open_demo
from history.base import memory

bind = "127.0.0.1:8000"
worker_class = "annals.serving.worker.Worker"
workers = 2
threads = env.WEB_THREADS  # each may need a connection: the pool in annals.settings counts them
timeout = 60
graceful_timeout = 10
control_socket_disable = True
_settings = checked_settings()
logconfig_dict = logs.configuration(_settings.log_level, _settings.log_format)
accesslog = None  # annals.observe.requests writes a line for each request, without the query string

memory.limit()

# A short request waits this long for each of the threads that compute, many times: 5 ms, Python's
# default, made it seconds while dear questions were answered.
sys.setswitchinterval(0.0005)

# Must be set before prometheus_client is imported. Workers keep their metrics in files here; the
# worker that answers /metrics adds them up.
METRICS = Path(tempfile.mkdtemp(prefix="annals-metrics-"))
os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(METRICS)


def when_ready(server: Any) -> None:
    """Refuse to serve a demo that nobody asked for at an address outside this machine. The sockets
    are there, also those that systemd opened, and no worker answers yet."""
    names = [each.sock.getsockname() for each in server.LISTENERS]
    hosts = [str(name[0]) for name in names if isinstance(name, tuple)]
    try:
        refuse_open_demo(_settings, hosts)
    except env.SettingError as error:
        raise SystemExit(f"annals: {error}") from None


def child_exit(_server: Any, worker: Any) -> None:
    """Remove the gauges of a worker that has ended. Its counters stay, so that sums never fall."""
    from prometheus_client.multiprocess import mark_process_dead

    mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]


def on_exit(_server: Any) -> None:
    """Runs in the master process when it ends."""
    shutil.rmtree(METRICS, ignore_errors=True)
