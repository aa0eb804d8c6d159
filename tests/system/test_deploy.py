"""The files of deploy/: nginx with TLS in front of the real web, systemd units, and cron lines."""

import http.client
import json
import os
import re
import shlex
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from django.core.management import get_commands, load_command_class

from annals import env
from annals.embedded import logins, process
from annals.embedded.postgres import Postgres
from annals.operations.jobs import LATE
from tests import need
from tests.attack.web import gunicorn
from tests.consuming import until
from tests.processes import own_database, server

__all__ = ["server"]

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
TIMERS = sorted((DEPLOY / "systemd").glob("*.timer"))
COMPOSE_NGINX = ROOT / "docker" / "nginx" / "nginx.conf"
HOST = "annals.bank.example"
TERMINATOR = "127.0.0.2"  # in the place of the load balancer

pytestmark = pytest.mark.system


# nginx.


@contextmanager
def nginx(folder: Path, text: str, port: int) -> Iterator[None]:
    """Run nginx with this configuration until the block ends."""
    program = need.nginx()
    file = folder / "nginx.conf"
    file.write_text(text)
    words = [program, "-p", str(folder), "-c", str(file), "-e", str(folder / "error.log")]
    checked = subprocess.run([*words, "-t"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    assert "[warn]" not in checked.stderr
    proxy = subprocess.Popen([*words, "-g", "daemon off; master_process off;"])
    try:
        until(lambda: accepts(port), (folder / "error.log").read_text)
        yield
    finally:
        proxy.terminate()
        proxy.wait(20)


def accepts(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def configured(folder: Path, name: str, upstream: int, ports: dict[int, int]) -> str:
    """The configuration of a host that includes a file of deploy/nginx, as its comment says, with
    the ports and paths of this test."""
    (folder / "annals-common.conf").write_text(
        (DEPLOY / "nginx" / "annals-common.conf").read_text()
    )
    text = (DEPLOY / "nginx" / name).read_text()
    text = re.sub(r"\n *listen \[::\][^;]*;", "", text)
    for old, new in ports.items():
        assert f"listen {old}" in text
        text = text.replace(f"listen {old}", f"listen 127.0.0.1:{new}")
    text = text.replace("server 127.0.0.1:8000;", f"server 127.0.0.1:{upstream};")
    text = text.replace("/etc/annals/tls/", f"{folder}/").replace("192.0.2.10", TERMINATOR)
    temporary = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{each}_temp_path {folder}/{each};\n" for each in temporary)
    return f"pid {folder}/nginx.pid;\nevents {{}}\nhttp {{\n{paths}{text}}}\n"


class Echo(BaseHTTPRequestHandler):
    """Answers with the headers that have arrived."""

    def do_GET(self) -> None:
        body = json.dumps(dict(self.headers.items())).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def echo() -> Iterator[int]:
    upstream = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    Thread(target=upstream.serve_forever, daemon=True).start()
    yield upstream.server_port
    upstream.shutdown()
    upstream.server_close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate of its own for HOST."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            *(need.program("openssl"), "req", "-x509", "-nodes", "-days", "2"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-keyout", "key.pem", "-out", "fullchain.pem"),
            *("-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST}"),
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return folder


class Secure(http.client.HTTPSConnection):
    """To nginx on this machine, which must show the certificate of HOST."""

    def __init__(self, port: int, authority: Path, **more: Any) -> None:
        context = ssl.create_default_context(cafile=authority)
        super().__init__(HOST, port, timeout=20, context=context, **more)
        self._create_connection = lambda _address, *rest: socket.create_connection(
            ("127.0.0.1", port), *rest
        )


class Front:
    """nginx with TLS in front of the web."""

    def __init__(self, plain: int, secure: int, authority: Path, log: Path) -> None:
        self.plain, self.secure, self.authority, self.log = plain, secure, authority, log

    def get(self, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> Any:
        connection = Secure(self.secure, self.authority)
        given = {name.replace("_", "-"): text for name, text in headers.items()}
        connection.request(method, path, body, {"Host": HOST, **given})
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer


@pytest.fixture(scope="module")
def front(
    server: Postgres, tmp_path_factory: pytest.TempPathFactory, certificate: Path
) -> Iterator[Front]:
    folder = tmp_path_factory.mktemp("front")
    for name in ("key.pem", "fullchain.pem"):
        shutil.copy(certificate / name, folder)
    with own_database(server) as database:
        given = {n: v for n, v in os.environ.items() if not n.startswith("ANNALS_")}
        given |= {
            "DATABASE_URL": database.url_of(logins.WEB),
            "ANNALS_SECRET_KEY": "k" * 50,
            "ANNALS_ALLOWED_HOSTS": f"{HOST},127.0.0.1",
            "ANNALS_HTTPS": "true",
            "ANNALS_TRUSTED_PROXIES": "127.0.0.1",
        }
        with gunicorn(given, folder) as web:
            plain, secure = process.free_ports([None, None])
            text = configured(folder, "annals.conf", web.port, {80: plain, 443: secure})
            with nginx(folder, text, secure):
                yield Front(plain, secure, folder / "fullchain.pem", web.log)


HSTS = ["max-age=31536000; includeSubDomains"]


def test_http_is_redirected_to_the_name_of_the_proxy(front: Front) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", front.plain, 20)
    connection.request("POST", "/admin/?q=x", headers={"Host": "evil.example"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    assert (answer.status, answer.headers["Location"]) == (308, f"https://{HOST}/admin/?q=x")


def test_answers_over_tls_have_hsts_once(front: Front) -> None:
    page = front.get("/admin/login/")
    assert page.status == 200
    assert page.headers.get_all("Strict-Transport-Security") == HSTS  # Django's
    for path in ("/metrics", "/readyz", "/healthz"):
        answer = front.get(path)
        assert answer.headers.get_all("Strict-Transport-Security") == HSTS, path
    assert [front.get(path).status for path in ("/metrics", "/readyz")] == [404, 404]
    large = front.get("/admin/login/", "POST", b"x" * 11_000_000)
    assert (large.status, large.headers.get_all("Strict-Transport-Security")) == (413, HSTS)


def test_client_does_not_choose_its_scheme_or_its_address(front: Front) -> None:
    """An http that was believed would be redirected for ever; the journal has the address."""
    said = {"X_Forwarded_Proto": "http", "X_Forwarded_For": "1.2.3.4"}
    assert front.get("/admin/login/", **said).status == 200
    front.get("/api/v1/search?q=x", Authorization="Bearer no", **said)
    until(lambda: "status=401" in front.log.read_text(), front.log.read_text)
    assert "1.2.3.4" not in front.log.read_text()


def ask(port: int, source: str, **headers: str) -> tuple[int, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, 20, source_address=(source, 0))
    given = {name.replace("_", "-"): text for name, text in headers.items()}
    connection.request("GET", "/", headers={"Host": HOST, **given})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, json.loads(body) if answer.status == 200 else {}


def test_only_the_proxy_with_tls_is_let_in_and_believed(echo: int, tmp_path: Path) -> None:
    [port] = process.free_ports([None])
    text = configured(tmp_path, "annals-behind-tls.conf", echo, {8080: port})
    said = {"X_Forwarded_For": "1.2.3.4, 203.0.113.9", "X_Forwarded_Host": "evil"}
    with nginx(tmp_path, text, port):
        assert ask(port, "127.0.0.1", X_Forwarded_Proto="https", **said)[0] == 403
        status, headers = ask(port, TERMINATOR, X_Forwarded_Proto="https", **said)
        assert (status, headers["X-Forwarded-Proto"]) == (200, "https")
        assert headers["X-Forwarded-For"] == "203.0.113.9"
        assert "X-Forwarded-Host" not in headers
        for other in ({}, {"X_Forwarded_Proto": "http"}, {"X_Forwarded_Proto": "https, http"}):
            assert ask(port, TERMINATOR, **other)[1]["X-Forwarded-Proto"] == "http"


def test_proxy_of_compose_believes_only_the_gateway(echo: int, tmp_path: Path) -> None:
    [port] = process.free_ports([None])
    text = COMPOSE_NGINX.read_text().replace("172.31.250.1", TERMINATOR)
    text = text.replace("server web:8000;", f"server 127.0.0.1:{echo};")
    text = text.replace("listen 8080 default_server;", f"listen 127.0.0.1:{port};")
    text = text.replace("/tmp/", f"{tmp_path}/")  # noqa: S108 - what the container has
    with nginx(tmp_path, text, port):
        for source, scheme in (("127.0.0.1", "http"), (TERMINATOR, "https")):
            status, headers = ask(port, source, X_Forwarded_Proto="https")
            assert (status, headers["X-Forwarded-Proto"]) == (200, scheme)


# systemd and cron.


def installed(folder: Path) -> list[Path]:
    """The units as they are installed, with programs that exist on this machine."""
    for unit in (*UNITS, *TIMERS):
        text = unit.read_text().replace("/opt/annals/bin/", f"{folder}/")
        (folder / unit.name.replace("@", "@3")).write_text(text)
    for name in ("annals", "gunicorn"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return [*folder.glob("*.service"), *folder.glob("*.timer")]


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    program = need.program("systemd-analyze", "systemd")
    units = installed(tmp_path)
    assert len(units) == len(UNITS) + len(TIMERS)
    done = subprocess.run(
        [program, "verify", "--man=no", *units], capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_units_may_do_little_on_their_host(tmp_path: Path) -> None:
    """systemd's own measure: 0 is nothing, 10 everything; a unit without options has 9.6."""
    program = need.program("systemd-analyze", "systemd")
    for unit in (each for each in installed(tmp_path) if each.suffix == ".service"):
        words = [program, "security", "--offline=yes", "--threshold=20", "--no-pager", unit]
        done = subprocess.run(words, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout[-300:] + done.stderr


def settings_of(unit: Path) -> dict[str, str]:
    """The last value of each setting of a unit."""
    lines = [line for line in unit.read_text().splitlines() if line and line[0] not in "#["]
    return dict(line.split("=", 1) for line in lines)


OWNERS = {"annals-web": "web", "annals-consumer": "consumer", "annals-owner": "owner"}
LOGINS = {name: f"{name}_login" for name in OWNERS.values()}
READS = {"consume", "quarantine", "heal"}  # what others sent: not as the owner


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_unit_has_a_user_an_environment_a_log_and_a_command_that_exists(unit: Path) -> None:
    given = settings_of(unit)
    name = OWNERS[given["User"]]
    assert given["EnvironmentFile"] == f"/etc/annals/{name}.env"
    assert (given["StandardOutput"], given["StandardError"]) == ("journal", "journal")
    assert f"u {given['User']} " in (DEPLOY / "systemd" / "annals.sysusers.conf").read_text()
    words = shlex.split(given["ExecStart"].replace("%i", "3"))
    if words[0].endswith("/gunicorn"):
        assert (words[1:], name) == (["--config", "python:annals.server", "annals.wsgi"], "web")
        return
    assert (name == "consumer") is bool(READS & set(words))
    command = load_command_class(get_commands()[words[1]], words[1])
    command.create_parser("", words[1]).parse_args(words[2:])


@pytest.mark.parametrize("name", LOGINS)
def test_example_of_an_environment_is_one_that_annals_and_a_shell_read(name: str) -> None:
    file = DEPLOY / "systemd" / f"{name}.env.example"
    words = shlex.split(file.read_text(), comments=True)
    given = dict(word.split("=", 1) for word in words)
    settings = env.read(given)
    assert settings.database_url is not None
    assert f"//{LOGINS[name]}:" in settings.database_url
    prints = "import json, os; print(json.dumps(dict(os.environ)))"
    script = f"set -a; . {file}; exec {sys.executable} -c '{prints}'"
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True)
    assert given.items() <= json.loads(done.stdout).items()


def commands() -> dict[str, str]:
    """By the command of a job, the schedule of its timer."""
    found = {}
    for timer in TIMERS:
        service = timer.with_suffix(".service")
        command = settings_of(service)["ExecStart"].removeprefix("/opt/annals/bin/")
        found[command] = settings_of(timer)["OnCalendar"]
    return found


def test_each_job_has_a_timer_that_systemd_reads() -> None:
    program = need.program("systemd-analyze", "systemd")
    found = commands()
    source = (ROOT / "annals" / "operations" / "jobs.py").read_text()
    jobs = set(re.findall(r'"(annals (?:partitions|gaps)[^"]*)"', source))
    assert len(jobs) == len(LATE) - 1  # and the retry, whose name is JobRun.RETRY
    for job in (*jobs, "annals quarantine retry"):
        assert any(f"{command} ".startswith(f"{job} ") for command in found), job
    for when in found.values():
        subprocess.run([program, "calendar", when], check=True, capture_output=True, timeout=300)


def test_cron_runs_the_same_jobs_as_the_timers() -> None:
    lines = (DEPLOY / "cron" / "annals").read_text().splitlines()
    jobs = [line.lstrip("#") for line in lines if "/opt/annals/bin/" in line]
    found = set()
    for job in jobs:
        match = re.fullmatch(
            r"(?:\S+ ){5}(annals-\w+) set -a; \. /etc/annals/(\w+)\.env; "
            r"/opt/annals/bin/(annals [^|]*) 2>&1 \| logger -t annals-[\w-]+",
            job,
        )
        assert match is not None, job
        assert OWNERS[match[1]] == match[2]
        assert (match[2] == "consumer") is bool(READS & set(match[3].split()))
        found.add(match[3])
    assert found == set(commands())
