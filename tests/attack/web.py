"""The production web server behind its proxy, on a temporary PostgreSQL, and attacking clients."""

import base64
import contextlib
import http.client
import math
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import requests

from annals.configuration import env
from annals.configuration.fields import Settings
from annals.embedded import process
from annals.embedded.postgres import EmbeddedPostgres
from tests import required_programs
from tests.consuming import run_command, wait_until

ROOT = Path(__file__).resolve().parents[2]
NGINX = ROOT / "docker" / "nginx" / "nginx.conf"
LIMIT_SECONDS = 2
REQUEST_SECONDS = 6
LOGIN = "Basic " + base64.b64encode(b"support:support").decode()


@dataclass(frozen=True, slots=True)
class AttackFigure:
    """One measured figure. The attack succeeds if it is above the limit."""

    subject: str
    value: float
    limit: float
    unit: str = ""

    @property
    def succeeds(self) -> bool:
        return self.value > self.limit

    def format_line(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        verdict = "SUCCEEDS" if self.succeeds else "is repelled"
        measured = f"{self.value:g}{unit} (limit {self.limit:g}{unit})"
        return f"{self.subject}: {measured}: the attack {verdict}"


@dataclass(frozen=True, slots=True)
class AttackAnswer:
    """The answer to a request, or the lack of an answer."""

    status: int  # 0 if no answer came in time
    seconds: float  # until the last byte
    headers: dict[str, str]
    body: bytes


class AttackedWeb:
    """A running web server."""

    def __init__(self, port: int, log: Path, url: str, pid: int) -> None:
        self.port, self.log, self.url, self.pid = port, log, url, pid
        # The web server itself, if this instance is its proxy.
        self.behind = self

    def send_request(
        self,
        path: str,
        timeout: float = 60,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
    ) -> AttackAnswer:
        """Send a request as the login `support`. Does not raise if there is no answer."""
        began = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, headers={"Authorization": LOGIN, **(headers or {})})
            response = connection.getresponse()
            body = response.read()
            response_headers = {name.lower(): value for name, value in response.getheaders()}
            return AttackAnswer(response.status, time.monotonic() - began, response_headers, body)
        except (OSError, http.client.HTTPException):
            return AttackAnswer(0, time.monotonic() - began, {}, b"")
        finally:
            connection.close()

    def open_connection(self, receive_buffer: int | None = None) -> socket.socket:
        """Open a connection without sending anything."""
        connection = socket.socket()
        if receive_buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.settimeout(10)
        connection.connect(("127.0.0.1", self.port))
        return connection

    def open_request(self, path: str, receive_buffer: int | None = None) -> socket.socket:
        """Open a connection, send a whole request, and read nothing."""
        connection = self.open_connection(receive_buffer)
        connection.sendall(make_request(path))
        return connection

    def query_database(self, text: str, *values: object) -> list[tuple[Any, ...]]:
        """Query the database as the owner of the tables."""
        with psycopg.connect(self.url, autocommit=True) as plain:
            return plain.execute(text, values).fetchall()

    @contextmanager
    def lock_table(self, table: str) -> Iterator[None]:
        """Lock a table during the `with` block, so that statements that read the table wait."""
        with psycopg.connect(self.url) as plain:
            plain.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
            yield
            plain.rollback()

    def count_waiting(self) -> int:
        """Return how many statements wait for a lock now."""
        ((waiting_count,),) = self.query_database(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND datname = current_database()"
        )
        return int(waiting_count)


def make_request(path: str, *headers: str) -> bytes:
    """Return the bytes of a request of the login `support`."""
    lines = [f"GET {path} HTTP/1.1", "Host: localhost", f"Authorization: {LOGIN}", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


PROXY_SETTINGS = {"ANNALS_TRUSTED_PROXIES": "127.0.0.1/32"}
# The settings of a server that several attacks share. Its low limits make the attacks short.
ATTACK_SETTINGS = PROXY_SETTINGS | {"ANNALS_REQUEST_SECONDS": str(REQUEST_SECONDS)}
# A change of the proxy's configuration. Real attackers have many addresses; these have only one.
MANY_CLIENTS = {"limit_conn clients 50;": "limit_conn clients 4000;"}


class AttackedSite:
    """A database with tables, days and documents, and the web servers that use it."""

    def __init__(self, folder: Path, url: str, web_url: str | None = None) -> None:
        self.folder, self.url, self.web_url = folder, url, web_url or url
        self._web: AttackedWeb | None = None

    def make_environment(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a process of Annals.

        Args:
            settings: Values by environment variable. Variables that Annals does not have are left
                out.
        """
        known_variables = {env.get_variable_name(field) for field in Settings.__struct_fields__}
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith("ANNALS_")
        }
        return inherited | {
            "DATABASE_URL": self.url,
            "ANNALS_DEMO": "true",
            "ANNALS_HOME": str(self.folder / "home"),
            "ANNALS_RETENTION_DAYS": "12",  # few, because creating days takes time
            "TMPDIR": str(self.folder),
            **{name: value for name, value in settings.items() if name in known_variables},
        }

    def run_command(self, *arguments: str) -> None:
        run_command(self.make_environment({}), *arguments).check_returncode()

    def prepare_tables(self) -> None:
        """Create the tables, the logins and the days."""
        self.run_command("migrate", "--verbosity", "0")
        self.run_command("partitions", "maintain")

    def store_application(self, id: str, versions: int, fields: int, size: int = 40) -> None:
        """Store an application with one field that changes in every version.

        Args:
            fields: How many fields without changes the application has.
            size: The length in characters of a field without changes.
        """
        with psycopg.connect(self.url, autocommit=True) as plain:
            plain.execute(
                """
                INSERT INTO product_instance_aud (id, version, data, updated_at, client_id, type)
                SELECT %s, v, jsonb_build_object('n', v) || (
                        SELECT jsonb_object_agg('field' || f, repeat(md5(f::text), %s))
                        FROM generate_series(1, %s) AS f
                    ), now() - (%s - v) * interval '5 minutes', 'attack', least(v, 1)
                FROM generate_series(0, %s - 1) AS v
                """,
                (id, max(1, size // 32), fields, versions, versions),
            )

    def store_versions(self, id: str, documents: Iterable[str]) -> None:
        """Store these versions of an application, a second apart."""
        with psycopg.connect(self.url, autocommit=True) as plain, plain.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO product_instance_aud (id, version, data, updated_at, client_id, type)"
                " VALUES (%s, %s, %s, now() - interval '1 hour' + %s * interval '1 second',"
                " 'attack', least(%s, 1))",
                [(id, number, text, number, number) for number, text in enumerate(documents)],
            )

    @contextmanager
    def run_web(self, **settings: str) -> Iterator[AttackedWeb]:
        """Run a web server with these settings behind nginx, and yield it when it answers.

        While `share_web` runs, yield the shared web server instead.
        """
        if self._web is not None:
            yield self._web
            return
        with self.run_proxied(settings, MANY_CLIENTS) as web:
            yield web

    def run_own_web(self) -> AbstractContextManager[AttackedWeb]:
        """Run a new web server with default settings behind nginx, even while `share_web` runs.

        The shared web server has lower limits than the default settings.
        """
        return self.run_proxied({}, MANY_CLIENTS)

    @contextmanager
    def share_web(self) -> Iterator[None]:
        """Run one web server with ATTACK_SETTINGS for all attacks inside the `with` statement."""
        with self.run_proxied(ATTACK_SETTINGS, MANY_CLIENTS) as self._web:
            yield
        self._web = None

    @contextmanager
    def run_proxied(
        self, settings: Mapping[str, str], changes: Mapping[str, str]
    ) -> Iterator[AttackedWeb]:
        """Run a web server behind nginx with the configuration of docker/nginx/nginx.conf.

        nginx waits only one second where the file says ten, so that attacks end soon.

        Args:
            changes: Replacements in the text of the configuration.
        """
        program = required_programs.nginx()
        environment = self.make_environment(settings) | {"DATABASE_URL": self.web_url}
        with run_gunicorn(environment, self.folder) as web:
            (port,) = process.choose_free_ports([None])
            text = NGINX.read_text()
            for old, new in {
                "server web:8000;": f"server 127.0.0.1:{web.port};",
                "listen 8080 default_server;": f"listen 127.0.0.1:{port};",
                " 10s;": " 1s;",
                "/tmp/": f"{self.folder}/nginx-",  # noqa: S108 - the folder of the container
                **changes,
            }.items():
                assert old in text, f"docker/nginx/nginx.conf has no {old}"
                text = text.replace(old, new)
            file = self.folder / f"nginx-{port}.conf"
            file.write_text(text)
            command = [program, "-c", str(file), "-g", "daemon off; master_process off;"]
            proxy = subprocess.Popen([*command, "-p", str(self.folder)])
            web.url = self.url
            proxied_web = AttackedWeb(port, web.log, self.url, web.pid)
            proxied_web.behind = web
            try:
                wait_until(lambda: is_answering(proxied_web), web.log.read_text)
                yield proxied_web
            finally:
                proxy.terminate()
                proxy.wait(20)


def open_browser(web: AttackedWeb, login: str = "support") -> requests.Session:
    """Return a browser in which this demo login is logged in."""
    session = requests.Session()
    form = f"http://127.0.0.1:{web.port}/admin/login/"
    session.get(form)
    token = session.cookies["csrftoken"]
    # The answer does not matter: some logins may not see the page behind the form.
    session.post(form, {"username": login, "password": login, "csrfmiddlewaretoken": token})
    return session


def is_answering(web: AttackedWeb) -> bool:
    """Return whether six requests of the login `support` are answered with 200.

    The requests warm up the worker processes: the first request of a process is slow, because the
    process must hash the password of the login.
    """
    return all(web.send_request("/api/v1/completeness").status == 200 for _ in range(6))


@contextmanager
def run_gunicorn(
    env: Mapping[str, str],
    folder: Path,
    *arguments: str,
    root: Path = ROOT,
    ready: str = "/healthz",
) -> Iterator[AttackedWeb]:
    """Run the production web server of a project, and yield it when it answers.

    Args:
        folder: The folder for the log file of the web server.
        arguments: More command-line arguments of gunicorn.
        ready: The path that answers 200 when the web server accepts requests.
    """
    (port,) = process.choose_free_ports([None])
    log = folder / f"web-{secrets.token_hex(4)}.log"
    program = [sys.executable, "-m", "gunicorn", "--config", "python:annals.server", *arguments]
    with log.open("w") as file:
        server = subprocess.Popen(
            [*program, "--bind", f"127.0.0.1:{port}", "annals.wsgi"],
            cwd=root,
            env=env,
            stdout=file,
            stderr=file,
        )
    web = AttackedWeb(port, log, env["DATABASE_URL"], server.pid)
    try:
        wait_until(
            lambda: web.send_request(ready).status == 200 or server.poll() is not None,
            log.read_text,
        )
        assert server.poll() is None, log.read_text()
        yield web
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


@contextmanager
def create_site() -> Iterator[AttackedSite]:
    """Start a PostgreSQL server with the tables of Annals, and remove it after the attacks."""
    folder = Path(tempfile.mkdtemp(prefix="annals-attack-"))
    postgres = EmbeddedPostgres(folder / "postgres", {"fsync": "off"})
    try:
        postgres.start()
        created = AttackedSite(folder, postgres.build_url())
        created.prepare_tables()
        yield created
    finally:
        postgres.stop("immediate")
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def run_in_threads(count: int, action: Callable[[], object]) -> Iterator[list[threading.Thread]]:
    """Run the action in `count` threads, and wait for these threads when the `with` block ends."""
    threads = [threading.Thread(target=action, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield threads
    finally:
        for thread in threads:
            thread.join()


def measure_slowest(
    send_request: Callable[[], AttackAnswer], seconds: float, every: float = 0.1
) -> float:
    """Repeat a request for `seconds` seconds, and return how many seconds the slowest answer took.

    The result is infinite if an answer did not come or was an error. The next request is sent
    `every` seconds after an answer.
    """
    slowest_seconds = 0.0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        response = send_request()
        slowest_seconds = max(
            slowest_seconds, response.seconds if response.status == 200 else math.inf
        )
        time.sleep(every)
    return round(slowest_seconds, 3)


def choose_limit(send_request: Callable[[], AttackAnswer], fast: bool) -> float:
    """Return the limit in seconds for the answers to other clients during an attack.

    Args:
        send_request: Sends a request as one of the other clients.
        fast: Whether the attack is small. A small attack can run on a busy machine, so the limit
            is then at least twenty times the slowest answer to `send_request` before the attack.
    """
    return max(LIMIT_SECONDS, 20 * measure_slowest(send_request, 2)) if fast else LIMIT_SECONDS


def count_open(sockets: list[socket.socket]) -> int:
    """Return how many of these connections the server has not closed."""
    count = 0
    for connection in sockets:
        connection.setblocking(False)
        try:
            while connection.recv(65536):
                pass
        except BlockingIOError:
            count += 1
        except OSError:
            pass
    return count


def close_connections(sockets: list[socket.socket]) -> None:
    for connection in sockets:
        with contextlib.suppress(OSError):
            connection.close()
