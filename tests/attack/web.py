"""The production web server behind its proxy, on a temporary PostgreSQL, and the clients of an
attacker."""

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

from annals import env
from annals.embedded import process
from annals.embedded.postgres import Postgres
from tests import need
from tests.consuming import command, until

ROOT = Path(__file__).resolve().parents[2]
NGINX = ROOT / "docker" / "nginx" / "nginx.conf"
LIMIT_S = 2
REQUEST_S = 6
LOGIN = "Basic " + base64.b64encode(b"support:support").decode()


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of an attack; the attack succeeds if it is above the limit."""

    what: str
    value: float
    limit: float
    unit: str = ""

    @property
    def succeeds(self) -> bool:
        return self.value > self.limit

    def line(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        verdict = "SUCCEEDS" if self.succeeds else "is repelled"
        found = f"{self.value:g}{unit} (limit {self.limit:g}{unit})"
        return f"{self.what}: {found}: the attack {verdict}"


@dataclass(frozen=True, slots=True)
class Answer:
    """status: 0 if there was none within the time. seconds: until its last byte."""

    status: int
    seconds: float
    headers: dict[str, str]
    body: bytes


class Web:
    """A running web server."""

    def __init__(self, port: int, log: Path, url: str, pid: int) -> None:
        self.port, self.log, self.url, self.pid = port, log, url, pid
        # The same one without its proxy.
        self.behind = self

    def get(
        self,
        path: str,
        timeout: float = 60,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Ask as the login `support`. Does not raise if nobody answers."""
        began = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, headers={"Authorization": LOGIN, **(headers or {})})
            found = connection.getresponse()
            body = found.read()
            given = {name.lower(): value for name, value in found.getheaders()}
            return Answer(found.status, time.monotonic() - began, given, body)
        except (OSError, http.client.HTTPException):
            return Answer(0, time.monotonic() - began, {}, b"")
        finally:
            connection.close()

    def connect(self, receive_buffer: int | None = None) -> socket.socket:
        """A connection that nothing is sent on yet."""
        made = socket.socket()
        if receive_buffer is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        made.settimeout(10)
        made.connect(("127.0.0.1", self.port))
        return made

    def ask(self, path: str, receive_buffer: int | None = None) -> socket.socket:
        """A connection on which a whole request was sent, and nothing read."""
        made = self.connect(receive_buffer)
        made.sendall(request(path))
        return made

    def query(self, text: str, *values: object) -> list[tuple[Any, ...]]:
        """Ask the database, as the owner of the tables."""
        with psycopg.connect(self.url, autocommit=True) as plain:
            return plain.execute(text, values).fetchall()

    @contextmanager
    def locked(self, table: str) -> Iterator[None]:
        """Nobody reads the table meanwhile: what asks it waits in PostgreSQL."""
        with psycopg.connect(self.url) as plain:
            plain.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
            yield
            plain.rollback()

    def waiting(self) -> int:
        """Statements that wait for a lock now."""
        ((found,),) = self.query(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND datname = current_database()"
        )
        return int(found)


def request(path: str, *headers: str) -> bytes:
    """A request of the login `support`."""
    lines = [f"GET {path} HTTP/1.1", "Host: localhost", f"Authorization: {LOGIN}", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


# Limits that an attack need not wait long for. Attacks set them too where they count.
PROXY = {"ANNALS_TRUSTED_PROXIES": "127.0.0.1/32"}  # attackers have many addresses
ALL = PROXY | {"ANNALS_REQUEST_SECONDS": str(REQUEST_S)}
# Of the proxy's configuration. The attackers have one address here.
MANY_CLIENTS = {"limit_conn clients 50;": "limit_conn clients 4000;"}


class Site:
    """A database with the tables of the product, their days and some documents; temporary files
    are in `folder`. web_url: with the login of the web, where it has one of its own."""

    def __init__(self, folder: Path, url: str, web_url: str | None = None) -> None:
        self.folder, self.url, self.web_url = folder, url, web_url or url
        self._web: Web | None = None

    def environment(self, settings: Mapping[str, str]) -> dict[str, str]:
        """settings: those that this version of Annals does not have are left out."""
        known = {env.variable(field) for field in env.Settings.__struct_fields__}
        own = {name: value for name, value in os.environ.items() if not name.startswith("ANNALS_")}
        return own | {
            "DATABASE_URL": self.url,
            "ANNALS_DEMO": "true",
            "ANNALS_HOME": str(self.folder / "home"),
            "ANNALS_RETENTION_DAYS": "12",  # few days to make
            "TMPDIR": str(self.folder),
            **{name: value for name, value in settings.items() if name in known},
        }

    def manage(self, *arguments: str) -> None:
        command(self.environment({}), *arguments).check_returncode()

    def prepare(self) -> None:
        """Create the tables, the logins and the days."""
        self.manage("migrate", "--verbosity", "0")
        self.manage("partitions", "maintain")

    def store(self, id: str, versions: int, fields: int, size: int = 40) -> None:
        """Store an application whose first field changes with every version, the others never.
        size: characters of each field."""
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

    def store_all(self, id: str, documents: Iterable[str]) -> None:
        """Store these versions of an application, a second apart."""
        with psycopg.connect(self.url, autocommit=True) as plain, plain.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO product_instance_aud (id, version, data, updated_at, client_id, type)"
                " VALUES (%s, %s, %s, now() - interval '1 hour' + %s * interval '1 second',"
                " 'attack', least(%s, 1))",
                [(id, number, text, number, number) for number, text in enumerate(documents)],
            )

    @contextmanager
    def serve(self, **settings: str) -> Iterator[Web]:
        """The web server with these settings behind its proxy, ready; in the block of `one_server`,
        that one."""
        if self._web is not None:
            yield self._web
            return
        with self.proxied(settings, MANY_CLIENTS) as web:
            yield web

    def serve_alone(self) -> AbstractContextManager[Web]:
        """A web server with the usual settings also in the block of `one_server`, whose limits are
        low."""
        return self.proxied({}, MANY_CLIENTS)

    @contextmanager
    def one_server(self) -> Iterator[None]:
        """All attacks in the block attack the same server, with the settings of ALL."""
        with self.proxied(ALL, MANY_CLIENTS) as self._web:
            yield
        self._web = None

    @contextmanager
    def proxied(self, settings: Mapping[str, str], changes: Mapping[str, str]) -> Iterator[Web]:
        """The web server behind nginx as docker/nginx/nginx.conf configures it. changes: to that
        text. Its waits are a second, so that attacks need not last."""
        program = need.nginx()
        environment = self.environment(settings) | {"DATABASE_URL": self.web_url}
        with gunicorn(environment, self.folder) as web:
            (port,) = process.free_ports([None])
            text = NGINX.read_text()
            for old, new in {
                "server web:8000;": f"server 127.0.0.1:{web.port};",
                "listen 8080 default_server;": f"listen 127.0.0.1:{port};",
                " 10s;": " 1s;",
                "/tmp/": f"{self.folder}/nginx-",  # noqa: S108 - what the container has
                **changes,
            }.items():
                assert old in text, f"docker/nginx/nginx.conf has no {old}"
                text = text.replace(old, new)
            file = self.folder / f"nginx-{port}.conf"
            file.write_text(text)
            command = [program, "-c", str(file), "-g", "daemon off; master_process off;"]
            proxy = subprocess.Popen([*command, "-p", str(self.folder)])
            web.url = self.url
            found = Web(port, web.log, self.url, web.pid)
            found.behind = web
            try:
                until(lambda: answers(found), web.log.read_text)
                yield found
            finally:
                proxy.terminate()
                proxy.wait(20)


def browser(web: Web, login: str = "support") -> requests.Session:
    """A browser in which this login of the demo has logged in."""
    made = requests.Session()
    form = f"http://127.0.0.1:{web.port}/admin/login/"
    made.get(form)
    token = made.cookies["csrftoken"]
    # who reads histories may not see the page behind the form
    made.post(form, {"username": login, "password": login, "csrfmiddlewaretoken": token})
    return made


def answers(web: Web) -> bool:
    """Whether each of its workers does: each hashes the password of `support` once."""
    return all(web.get("/api/v1/completeness").status == 200 for _ in range(6))


@contextmanager
def gunicorn(
    env: Mapping[str, str], folder: Path, *words: str, root: Path = ROOT, ready: str = "/healthz"
) -> Iterator[Web]:
    """The production web of a project; its log is in the folder. words: more of its command line.
    ready: what answers 200 when it may be asked."""
    (port,) = process.free_ports([None])
    log = folder / f"web-{secrets.token_hex(4)}.log"
    program = [sys.executable, "-m", "gunicorn", "--config", "python:annals.server", *words]
    with log.open("w") as file:
        server = subprocess.Popen(
            [*program, "--bind", f"127.0.0.1:{port}", "annals.wsgi"],
            cwd=root, env=env, stdout=file, stderr=file,
        )  # fmt: skip
    web = Web(port, log, env["DATABASE_URL"], server.pid)
    try:
        until(lambda: web.get(ready).status == 200 or server.poll() is not None, log.read_text)
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
def site() -> Iterator[Site]:
    """A site of its own, removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="annals-attack-"))
    postgres = Postgres(folder / "postgres", {"fsync": "off"})
    try:
        postgres.start()
        made = Site(folder, postgres.url())
        made.prepare()
        yield made
    finally:
        postgres.stop("immediate")
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def together(count: int, act: Callable[[], object]) -> Iterator[list[threading.Thread]]:
    """Do it in this many threads at once; the block runs meanwhile, and they end before it does."""
    threads = [threading.Thread(target=act, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield threads
    finally:
        for thread in threads:
            thread.join()


def slowest(ask: Callable[[], Answer], seconds: float, every: float = 0.1) -> float:
    """Ask again and again for this time. The seconds of the slowest answer; infinite if one did
    not come, or was no success."""
    found = 0.0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answer = ask()
        found = max(found, answer.seconds if answer.status == 200 else math.inf)
        time.sleep(every)
    return round(found, 3)


def limit(ask: Callable[[], Answer], fast: bool) -> float:
    """The seconds within which others must be answered. A small attack may come while the machine
    has other work: then twenty times what the question takes without an attack."""
    return max(LIMIT_S, 20 * slowest(ask, 2)) if fast else LIMIT_S


def still_open(sockets: list[socket.socket]) -> int:
    """How many of these connections the server has not closed."""
    count = 0
    for each in sockets:
        each.setblocking(False)
        try:
            while each.recv(65536):
                pass
        except BlockingIOError:
            count += 1
        except OSError:
            pass
    return count


def close(sockets: list[socket.socket]) -> None:
    for each in sockets:
        with contextlib.suppress(OSError):
            each.close()
