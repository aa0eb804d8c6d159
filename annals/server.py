"""The configuration of gunicorn: `gunicorn --config python:annals.server annals.wsgi`.

Options on gunicorn's command line override this file. Without `--bind`, gunicorn listens on the
loopback address only, for a proxy.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from annals.configuration import env
from annals.operations import logs
from annals.web.start import check_settings, refuse_open_demo, refuse_owner_login
from history.common import memory

bind = "127.0.0.1:8000"
worker_class = "gthread"
keepalive = 20  # longer than the proxy keeps an idle connection
limit_request_line = 0  # no limit: tokens and paths are long, and the proxy has a limit
# Headers of a client cannot change the address that it requests.
forwarder_headers = ""
forwarded_allow_ips = ""
workers = 2
threads = env.WEB_THREADS  # the pool in annals.settings has a connection for each
timeout = 60
graceful_timeout = 10
control_socket_disable = True
_settings = check_settings()
logconfig_dict = logs.make_logging_config(_settings.log_level, _settings.log_format)
# The middleware writes a line for each request, without the query string.
accesslog = None

memory.limit_heaps()

# How many seconds a computing thread keeps the interpreter while others wait for it. A short
# request waits many times. Python's default is 0.005.
sys.setswitchinterval(0.0005)

# The files of the workers' metrics. Set before prometheus_client is imported.
METRICS_FOLDER = Path(tempfile.mkdtemp(prefix="annals-metrics-"))
os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(METRICS_FOLDER)


def when_ready(server: Any) -> None:
    """Refuse a start that is not safe, then load the secret key.

    Gunicorn calls this in its master process before workers start. If other machines can reach the
    web server, this function refuses a demo, and a database login that is a superuser or owns the
    tables. The key is loaded last, because that can generate a file, which a refused start must not
    leave behind.
    """
    names = [listener.sock.getsockname() for listener in server.LISTENERS]
    hosts = [str(name[0]) for name in names if isinstance(name, tuple)]
    try:
        refuse_open_demo(_settings, hosts)
        refuse_owner_login(_settings, hosts)
        env.load_secret_key(_settings)  # once for all workers
    except env.SettingError as error:
        on_exit(server)  # gunicorn does not call it if this function raises
        raise SystemExit(f"annals: {error}") from None


def on_exit(_server: Any) -> None:
    """Remove the files of the metrics. Called in the master process when it ends."""
    shutil.rmtree(METRICS_FOLDER, ignore_errors=True)
