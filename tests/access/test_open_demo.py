"""A demo that nobody asked for is not served to others, and leaves no logins behind."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse

from annals.access.responses import ThisMachineOnly
from annals.access.roles import disable_demo_logins
from tests.access.real_provider import free_port
from tests.consuming import until

ROOT = Path(__file__).resolve().parents[2]
MANAGE = (sys.executable, "manage.py")
GUNICORN = (sys.executable, "-m", "gunicorn", "--config", "python:annals.server")


def unasked(folder: Path) -> dict[str, str]:
    """The environment of a demo that nobody asked for."""
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ANNALS_") and name != "DATABASE_URL"
    }
    return own | {"ANNALS_HOME": str(folder / "home")}


@pytest.mark.parametrize(
    "command, more, why",
    [
        ((*MANAGE, "check"), {"ANNALS_HTTPS": "true"}, "ANNALS_HTTPS is set"),
        (
            (*MANAGE, "check"),
            {"ANNALS_ALLOWED_HOSTS": "localhost,annals.bank.example"},
            "ANNALS_ALLOWED_HOSTS has annals.bank.example",
        ),
        ((*MANAGE, "runserver", "0.0.0.0:0"), {}, "0.0.0.0 can be reached from outside"),
        ((*GUNICORN, "--bind", "0.0.0.0:0", "annals.wsgi"), {}, "0.0.0.0 can be reached"),
        ((*GUNICORN, "annals.wsgi"), {"ANNALS_HTTPS": "true"}, "ANNALS_HTTPS is set"),
    ],
)
def test_an_open_demo_is_refused(
    command: tuple[str, ...], more: dict[str, str], why: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=unasked(tmp_path) | more,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert why in done.stderr
    assert "Set DATABASE_URL for production" in done.stderr
    assert not (tmp_path / "home").exists()


def test_a_socket_of_systemd_that_can_be_reached_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("0.0.0.0", 0)) as opened:  # noqa: S104 - what is refused
        inherit = (
            "import os, sys; os.dup2(int(sys.argv[1]), 3); os.set_inheritable(3, True);"
            "os.environ |= {'LISTEN_FDS': '1', 'LISTEN_PID': str(os.getpid())};"
            "os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"
        )
        done = subprocess.run(
            [sys.executable, "-c", inherit, str(opened.fileno()), *GUNICORN[1:], "annals.wsgi"],
            cwd=ROOT,
            env=unasked(tmp_path),
            pass_fds=[opened.fileno()],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode != 0
    assert "0.0.0.0 can be reached from outside" in done.stderr
    assert not (tmp_path / "home").exists()


def own_address() -> str:
    """An address of this machine that others can reach."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return str(one.getsockname()[0])


@contextmanager
def served(command: list[str], env: dict[str, str], folder: Path) -> Iterator[None]:
    with (folder / "web.log").open("w") as log:
        web = subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log)
    try:
        yield
    finally:
        web.terminate()
        web.wait(30)


def status(host: str, port: int) -> int:
    """0: nobody answers. The Host is one that is allowed."""
    try:
        one = http.client.HTTPConnection(host, port, timeout=30)
        one.request("GET", "/healthz", headers={"Host": "localhost"})
        return one.getresponse().status
    except OSError:
        return 0


def test_a_server_of_another_kind_answers_this_machine_only(tmp_path: Path) -> None:
    port, elsewhere = free_port(), own_address()
    env = unasked(tmp_path)
    command = [sys.executable, "-m", "gunicorn", "--bind", f"0.0.0.0:{port}", "annals.wsgi"]
    try:
        with served(command, env, tmp_path):
            until(lambda: status("127.0.0.1", port) == 200, "no answer", seconds=60)
            assert status(elsewhere, port) == 403
    finally:
        stop = [sys.executable, "manage.py", "embedded", "stop"]
        subprocess.run(stop, cwd=ROOT, env=env, check=True, capture_output=True)


@pytest.mark.parametrize(
    "peer, answer",
    [
        *(("127.0.0.1", 200), ("127.8.0.1", 200), ("::1", 200), ("::ffff:127.0.0.1", 200)),
        *(("192.0.2.2", 403), ("::ffff:192.0.2.2", 403), ("2001:db8::1", 403)),
        *(("", 403), ("localhost", 403)),
    ],
)
def test_only_the_other_end_of_the_connection_counts(peer: str, answer: int) -> None:
    request = HttpRequest()
    request.META = {"REMOTE_ADDR": peer, "HTTP_X_FORWARDED_FOR": "127.0.0.1"}
    found = ThisMachineOnly(lambda _: HttpResponse())(request)
    assert found.status_code == answer
    assert answer == 200 or b"Set DATABASE_URL for production" in found.content


def test_logins_of_a_demo_are_switched_off(db: None) -> None:
    User.objects.create_user("kept", password="not the name")
    found = User.objects.filter(is_active=True).values_list("username", flat=True)
    assert set(found) > {"support", "kept"}
    disable_demo_logins()
    assert list(found.all()) == ["kept"]
    assert not User.objects.get(username="support").has_usable_password()
