"""Files of deploy/: nginx with TLS as the proxy of a web server, systemd units, and cron lines."""

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

from annals.configuration import env
from annals.embedded import logins, process
from annals.embedded.postgres import EmbeddedPostgres
from annals.operations.jobs import LATE_AFTER
from tests import required_programs
from tests.attack.web import run_gunicorn
from tests.consuming import wait_until
from tests.processes import create_own_database, server

__all__ = ["server"]

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
TIMERS = sorted((DEPLOY / "systemd").glob("*.timer"))
COMPOSE_NGINX = ROOT / "docker" / "nginx" / "nginx.conf"
HOST = "annals.bank.example"
TLS_PROXY = "127.0.0.2"  # stands for the load balancer

pytestmark = pytest.mark.system


# nginx.


@contextmanager
def run_nginx(folder: Path, text: str, port: int) -> Iterator[None]:
    """Run nginx with this configuration during the `with` block."""
    program = required_programs.nginx()
    file = folder / "nginx.conf"
    file.write_text(text)
    arguments = [program, "-p", str(folder), "-c", str(file), "-e", str(folder / "error.log")]
    check = subprocess.run([*arguments, "-t"], capture_output=True, text=True)
    assert check.returncode == 0, check.stderr
    assert "[warn]" not in check.stderr
    proxy = subprocess.Popen([*arguments, "-g", "daemon off; master_process off;"])
    try:
        wait_until(lambda: is_accepting(port), (folder / "error.log").read_text)
        yield
    finally:
        proxy.terminate()
        proxy.wait(120)


def is_accepting(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def make_configuration(folder: Path, name: str, upstream: int, ports: dict[int, int]) -> str:
    """Return an nginx configuration that includes the file `name` of deploy/nginx.

    The ports and paths in this file are replaced by those of the test.

    Args:
        upstream: The port of the web server.
        ports: For each port in the file, the port that replaces it.
    """
    (folder / "annals-common.conf").write_text(
        (DEPLOY / "nginx" / "annals-common.conf").read_text()
    )
    text = (DEPLOY / "nginx" / name).read_text()
    text = re.sub(r"\n *listen \[::\][^;]*;", "", text)
    for old, new in ports.items():
        assert f"listen {old}" in text
        text = text.replace(f"listen {old}", f"listen 127.0.0.1:{new}")
    text = text.replace("server 127.0.0.1:8000;", f"server 127.0.0.1:{upstream};")
    text = text.replace("/etc/annals/tls/", f"{folder}/").replace("192.0.2.10", TLS_PROXY)
    temporary = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in temporary)
    return f"pid {folder}/nginx.pid;\nevents {{}}\nhttp {{\n{paths}{text}}}\n"


class HeaderEcho(BaseHTTPRequestHandler):
    """Answers each request with the headers of the request as JSON."""

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
    upstream = ThreadingHTTPServer(("127.0.0.1", 0), HeaderEcho)
    Thread(target=upstream.serve_forever, daemon=True).start()
    yield upstream.server_port
    upstream.shutdown()
    upstream.server_close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a self-signed certificate for HOST."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            required_programs.need_program("openssl"),
            "req",
            "-x509",
            "-nodes",
            "-days",
            "2",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-keyout",
            "key.pem",
            "-out",
            "fullchain.pem",
            "-subj",
            f"/CN={HOST}",
            "-addext",
            f"subjectAltName=DNS:{HOST}",
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return folder


class NginxTlsConnection(http.client.HTTPSConnection):
    """A connection to nginx on this machine, which must show the certificate of HOST."""

    def __init__(self, port: int, authority: Path, **more: Any) -> None:
        context = ssl.create_default_context(cafile=authority)
        super().__init__(HOST, port, timeout=120, context=context, **more)
        self._create_connection = lambda _address, *args: socket.create_connection(
            ("127.0.0.1", port), *args
        )


class TlsFront:
    """nginx with TLS, as the proxy of a web server of Annals."""

    def __init__(self, plain: int, secure: int, authority: Path, log: Path) -> None:
        self.plain, self.secure, self.authority, self.log = plain, secure, authority, log

    def send_request(
        self, path: str, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> Any:
        connection = NginxTlsConnection(self.secure, self.authority)
        all_headers = {name.replace("_", "-"): text for name, text in headers.items()}
        connection.request(method, path, body, {"Host": HOST, **all_headers})
        response = connection.getresponse()
        response.read()
        connection.close()
        return response


@pytest.fixture(scope="module")
def front(
    server: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory, certificate: Path
) -> Iterator[TlsFront]:
    folder = tmp_path_factory.mktemp("front")
    for name in ("key.pem", "fullchain.pem"):
        shutil.copy(certificate / name, folder)
    with create_own_database(server) as database:
        environment = {n: v for n, v in os.environ.items() if not n.startswith("ANNALS_")}
        environment |= {
            "DATABASE_URL": database.build_url(logins.WEB),
            "ANNALS_SECRET_KEY": "k" * 50,
            "ANNALS_ALLOWED_HOSTS": f"{HOST},127.0.0.1",
            "ANNALS_HTTPS": "true",
            "ANNALS_TRUSTED_PROXIES": "127.0.0.1",
        }
        with run_gunicorn(environment, folder) as web:
            plain, secure = process.choose_free_ports([None, None])
            text = make_configuration(folder, "annals.conf", web.port, {80: plain, 443: secure})
            with run_nginx(folder, text, secure):
                yield TlsFront(plain, secure, folder / "fullchain.pem", web.log)


HSTS = ["max-age=31536000; includeSubDomains"]


def test_nginx_redirects_http_requests_to_its_configured_host(front: TlsFront) -> None:
    """The Host header of the request has no influence."""
    connection = http.client.HTTPConnection("127.0.0.1", front.plain, 20)
    connection.request("POST", "/admin/?q=x", headers={"Host": "evil.example"})
    response = connection.getresponse()
    response.read()
    connection.close()
    assert (response.status, response.headers["Location"]) == (308, f"https://{HOST}/admin/?q=x")


def test_nginx_sends_the_hsts_header_exactly_once_over_tls(front: TlsFront) -> None:
    page = front.send_request("/admin/login/")
    assert page.status == 200
    assert page.headers.get_all("Strict-Transport-Security") == HSTS  # Django's
    for path in ("/metrics", "/readyz", "/healthz"):
        response = front.send_request(path)
        assert response.headers.get_all("Strict-Transport-Security") == HSTS, path
    assert [front.send_request(path).status for path in ("/metrics", "/readyz")] == [404, 404]
    large_answer = front.send_request("/admin/login/", "POST", b"x" * 11_000_000)
    assert (large_answer.status, large_answer.headers.get_all("Strict-Transport-Security")) == (
        413,
        HSTS,
    )


def test_nginx_ignores_forwarded_headers_from_a_client(front: TlsFront) -> None:
    """A forged "http" would cause redirects without end. A forged address would be written to the
    journal."""
    forged = {"X_Forwarded_Proto": "http", "X_Forwarded_For": "1.2.3.4"}
    assert front.send_request("/admin/login/", **forged).status == 200
    front.send_request("/api/v1/search?q=x", Authorization="Bearer no", **forged)
    wait_until(lambda: "status=401" in front.log.read_text(), front.log.read_text)
    assert "1.2.3.4" not in front.log.read_text()


def send_from(port: int, source: str, **headers: str) -> tuple[int, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, 20, source_address=(source, 0))
    all_headers = {name.replace("_", "-"): text for name, text in headers.items()}
    connection.request("GET", "/", headers={"Host": HOST, **all_headers})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, json.loads(body) if response.status == 200 else {}


def test_nginx_behind_tls_accepts_requests_only_from_its_tls_proxy(
    echo: int, tmp_path: Path
) -> None:
    [port] = process.choose_free_ports([None])
    text = make_configuration(tmp_path, "annals-behind-tls.conf", echo, {8080: port})
    forged = {"X_Forwarded_For": "1.2.3.4, 203.0.113.9", "X_Forwarded_Host": "evil"}
    with run_nginx(tmp_path, text, port):
        assert send_from(port, "127.0.0.1", X_Forwarded_Proto="https", **forged)[0] == 403
        status, headers = send_from(port, TLS_PROXY, X_Forwarded_Proto="https", **forged)
        assert (status, headers["X-Forwarded-Proto"]) == (200, "https")
        assert headers["X-Forwarded-For"] == "203.0.113.9"
        assert "X-Forwarded-Host" not in headers
        for unclear in ({}, {"X_Forwarded_Proto": "http"}, {"X_Forwarded_Proto": "https, http"}):
            assert send_from(port, TLS_PROXY, **unclear)[1]["X-Forwarded-Proto"] == "http"


def test_nginx_of_compose_trusts_forwarded_headers_only_from_the_gateway(
    echo: int, tmp_path: Path
) -> None:
    [port] = process.choose_free_ports([None])
    text = COMPOSE_NGINX.read_text().replace("172.31.250.1", TLS_PROXY)
    text = text.replace("server web:8000;", f"server 127.0.0.1:{echo};")
    text = text.replace("listen 8080 default_server;", f"listen 127.0.0.1:{port};")
    text = text.replace("/tmp/", f"{tmp_path}/")  # noqa: S108 - what the container has
    with run_nginx(tmp_path, text, port):
        for source, scheme in (("127.0.0.1", "http"), (TLS_PROXY, "https")):
            status, headers = send_from(port, source, X_Forwarded_Proto="https")
            assert (status, headers["X-Forwarded-Proto"]) == (200, scheme)


# systemd and cron.


def install_units(folder: Path) -> list[Path]:
    """Write the systemd units into a folder, and return the files of services and timers.

    The services run empty scripts in this folder, and not the programs in /opt/annals/bin.
    """
    for unit in (*UNITS, *TIMERS):
        text = unit.read_text().replace("/opt/annals/bin/", f"{folder}/")
        (folder / unit.name.replace("@", "@3")).write_text(text)
    for name in ("annals", "gunicorn"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return [*folder.glob("*.service"), *folder.glob("*.timer")]


def test_systemd_finds_no_fault_in_the_units(tmp_path: Path) -> None:
    program = required_programs.need_program("systemd-analyze", "systemd")
    units = install_units(tmp_path)
    assert len(units) == len(UNITS) + len(TIMERS)
    finished = subprocess.run(
        [program, "verify", "--man=no", *units], capture_output=True, text=True, timeout=300
    )
    assert (finished.returncode, finished.stdout + finished.stderr) == (0, "")


def test_systemd_units_restrict_their_access_to_the_host(tmp_path: Path) -> None:
    """systemd rates the access of a unit to the host from 0 (none) to 10 (all). A unit without
    options has 9.6."""
    program = required_programs.need_program("systemd-analyze", "systemd")
    for unit in (
        unit_file for unit_file in install_units(tmp_path) if unit_file.suffix == ".service"
    ):
        arguments = [program, "security", "--offline=yes", "--threshold=20", "--no-pager", unit]
        finished = subprocess.run(arguments, capture_output=True, text=True, timeout=300)
        assert finished.returncode == 0, finished.stdout[-300:] + finished.stderr


def read_unit(unit: Path) -> dict[str, str]:
    """Return the last value of each setting of a unit."""
    lines = [line for line in unit.read_text().splitlines() if line and line[0] not in "#["]
    return dict(line.split("=", 1) for line in lines)


ROLE_BY_USER = {"annals-web": "web", "annals-consumer": "consumer", "annals-owner": "owner"}
LOGINS = {name: f"{name}_login" for name in ROLE_BY_USER.values()}
# Commands that read messages of other services must not run as the owner of the tables.
COMMANDS_OF_CONSUMER = {"consume", "quarantine", "heal"}


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_unit_names_its_user_its_environment_file_and_an_existing_command(
    unit: Path,
) -> None:
    unit_settings = read_unit(unit)
    name = ROLE_BY_USER[unit_settings["User"]]
    assert unit_settings["EnvironmentFile"] == f"/etc/annals/{name}.env"
    assert (unit_settings["StandardOutput"], unit_settings["StandardError"]) == (
        "journal",
        "journal",
    )
    assert (
        f"u {unit_settings['User']} " in (DEPLOY / "systemd" / "annals.sysusers.conf").read_text()
    )
    arguments = shlex.split(unit_settings["ExecStart"].replace("%i", "3"))
    if arguments[0].endswith("/gunicorn"):
        assert (arguments[1:], name) == (
            ["--config", "python:annals.server", "annals.wsgi"],
            "web",
        )
        return
    assert (name == "consumer") is bool(COMMANDS_OF_CONSUMER & set(arguments))
    command = load_command_class(get_commands()[arguments[1]], arguments[1])
    command.create_parser("", arguments[1]).parse_args(arguments[2:])


@pytest.mark.parametrize("name", LOGINS)
def test_example_environment_file_can_be_read_by_annals_and_by_a_shell(name: str) -> None:
    file = DEPLOY / "systemd" / f"{name}.env.example"
    assignments = shlex.split(file.read_text(), comments=True)
    variables = dict(word.split("=", 1) for word in assignments)
    settings = env.read_settings(variables)
    assert settings.database_url is not None
    assert f"//{LOGINS[name]}:" in settings.database_url
    program = "import json, os; print(json.dumps(dict(os.environ)))"
    script = f"set -a; . {file}; exec {sys.executable} -c '{program}'"
    finished = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True)
    assert variables.items() <= json.loads(finished.stdout).items()


def map_schedules() -> dict[str, str]:
    """Return the schedule of each systemd timer by the command that it runs."""
    schedules = {}
    for timer in TIMERS:
        service = timer.with_suffix(".service")
        command = read_unit(service)["ExecStart"].removeprefix("/opt/annals/bin/")
        schedules[command] = read_unit(timer)["OnCalendar"]
    return schedules


def test_each_monitored_job_has_a_timer_with_a_valid_schedule() -> None:
    program = required_programs.need_program("systemd-analyze", "systemd")
    schedules = map_schedules()
    source = (ROOT / "annals" / "operations" / "jobs.py").read_text()
    jobs = set(re.findall(r'"(annals (?:partitions|gaps)[^"]*)"', source))
    # LATE_AFTER also has the retry, whose name is JobRun.RETRY.
    assert len(jobs) == len(LATE_AFTER) - 1
    for job in (*jobs, "annals quarantine retry"):
        assert any(f"{command} ".startswith(f"{job} ") for command in schedules), job
    for schedule in schedules.values():
        subprocess.run(
            [program, "calendar", schedule], check=True, capture_output=True, timeout=300
        )


def test_cron_file_has_the_same_jobs_as_the_timers() -> None:
    lines = (DEPLOY / "cron" / "annals").read_text().splitlines()
    jobs = [line.lstrip("#") for line in lines if "/opt/annals/bin/" in line]
    cron_commands = set()
    for job in jobs:
        match = re.fullmatch(
            r"(?:\S+ ){5}(annals-\w+) set -a; \. /etc/annals/(\w+)\.env; "
            r"/opt/annals/bin/(annals [^|]*) 2>&1 \| logger -t annals-[\w-]+",
            job,
        )
        assert match is not None, job
        assert ROLE_BY_USER[match[1]] == match[2]
        assert (match[2] == "consumer") is bool(COMMANDS_OF_CONSUMER & set(match[3].split()))
        cron_commands.add(match[3])
    assert cron_commands == set(map_schedules())
