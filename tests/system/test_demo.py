"""scripts/demo runs from another directory and in a path with a space, and can be interrupted."""

import html
import os
import re
import signal
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from queue import Queue
from threading import Thread

import psutil
import psycopg
import pytest

from annals.demo.client import LOGINS, DemoClient
from annals.embedded import process
from annals.embedded.postgres import EmbeddedPostgres
from tests.consuming import wait_until

DEMO = Path(__file__).resolve().parents[2] / "scripts" / "demo"
READY = "Ctrl-C stops everything"
PATIENCE_S = 300

pytestmark = pytest.mark.system


class RunningDemo:
    """A running scripts/demo and what it prints."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self.home = home
        environment = {name: text for name, text in os.environ.items() if name != "ANNALS_DEMO"}
        self.process = subprocess.Popen(
            [DEMO, *arguments],
            cwd=home.parent,
            env={**environment, "ANNALS_HOME": home.name},  # relative to the current directory
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.text = ""
        self._lines: Queue[str | None] = Queue()
        Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                self._lines.put(line)
        self._lines.put(None)

    def read_until(self, words: str) -> str:
        """Return everything printed up to a line with these words. Fail if the demo ends before."""
        while (line := self._lines.get(timeout=PATIENCE_S)) is not None:
            self.text += line
            if words in line:
                return self.text
        pytest.fail(f"ended without {words!r}:\n{self.text}")

    def wait_for_end(self) -> tuple[int, str]:
        """Wait for the end of the demo, and return its exit code and its whole output."""
        while (line := self._lines.get(timeout=PATIENCE_S)) is not None:
            self.text += line
        return self.process.wait(PATIENCE_S), self.text

    def find_child(self, name: str) -> psutil.Process:
        """Return the oldest process of the demo with this word in its command line."""
        children = [child for child in list_processes(self.home) if name in get_command_line(child)]
        return min(children, key=lambda child: child.create_time())


def list_processes(home: Path) -> list[psutil.Process]:
    """Return all processes that run for this ANNALS_HOME, even if their parent has ended."""
    running = []
    for candidate in psutil.process_iter():
        try:
            if candidate.status() == psutil.STATUS_ZOMBIE:
                continue
            command = " ".join(candidate.cmdline())
            if str(home) in command or candidate.environ().get("ANNALS_HOME") == str(home):
                running.append(candidate)
        except psutil.Error:
            continue
    return running


def get_command_line(process: psutil.Process) -> list[str]:
    """Return the words of the command line, or [] if the process has ended.

    The child processes of PostgreSQL can end at any time.
    """
    with suppress(psutil.NoSuchProcess):
        return list(process.cmdline())
    return []


@pytest.fixture
def home() -> Iterator[Path]:
    """The path of an ANNALS_HOME that does not exist yet, with a space and Cyrillic letters.

    Processes that use this path after the test are killed. The path is not below tmp_path, because
    pytest run by root closes the directory above tmp_path to all users except root, and PostgreSQL
    that root starts runs as a different user.
    """
    with tempfile.TemporaryDirectory(prefix="annals demo ") as folder:
        home = Path(folder) / "мой дом" / "home"
        home.parent.mkdir()
        yield home
        for candidate in list_processes(home):
            candidate.kill()


# Application name and login of the sessions that the jobs of cron can open.
CRON = {
    ("annals", "owner_login"),
    ("annals", "consumer_login"),
    ("annals-retry", "consumer_login"),
}


def list_sessions(home: Path) -> set[tuple[str, str]]:
    """Return the application name and the login of each session of the demo's processes."""
    with psycopg.connect(EmbeddedPostgres(home / "postgres").build_url()) as plain:
        return set(
            plain.execute(
                "SELECT application_name, usename FROM pg_stat_activity"
                " WHERE application_name LIKE 'annals%'"
            ).fetchall()
        )


def find_free_port() -> int:
    (port,) = process.choose_free_ports([None])
    return port


def find_address(text: str) -> str:
    match = re.search(r"http://localhost:\d+", text)
    assert match, text
    return match[0]


def change_price(shop: str) -> None:
    """Change the price of a product in the admin of the example shop, as a person does."""
    boris = DemoClient(shop, "boris", "boris", csrf_cookie="shop_csrf")
    list_page = boris.open_screen("/admin/orders/product/?q=KETTLE-17")
    match = re.search(r"/admin/orders/product/\d+/change/", list_page)
    assert match, list_page
    input_pattern = r'<input type="(?:hidden|text|number)" name="([^"]*)"(?: value="([^"]*)")?'
    form = {
        name: html.unescape(value)
        for name, value in re.findall(input_pattern, boris.open_screen(match[0]))
    }
    assert "errornote" not in boris.open_page(
        match[0], {**form, "price": "2590.00", "on_sale": "on"}
    )


def test_demo_runs_twice_on_the_same_data_and_leaves_no_process(home: Path) -> None:
    """The demo runs first with the example shop, and then without the shop.

    The file `showcase` names the application to which the demo links. The demo ignores an
    application in this file that is not in the database.
    """
    home.mkdir()
    (home / "showcase").write_text("lost-with-the-broker")
    demo = RunningDemo(home, "--port", str(find_free_port()), "--with-shop")
    text = demo.read_until(READY)
    link = re.search(r"http\S+/admin/history/product-instance/(\w+)/", text)
    assert link, text
    assert (home / "showcase").read_text() == link[1]
    client = DemoClient(find_address(text), "support", "support")
    versions = list(client.iterate_timeline("product-instance", link[1], 50))
    assert len(versions) > 1
    assert list_sessions(home) - CRON == {
        ("annals", "web_login"),
        ("annals-consume", "consumer_login"),
        ("annals-beat", "consumer_login"),
    }
    shop_match = re.search(r"^Shop +http://localhost:(\d+)/admin/$", text, re.MULTILINE)
    assert shop_match, text
    assert "anna and boris change prices and orders" in text
    change_price(f"http://127.0.0.1:{shop_match[1]}")
    wait_until(
        lambda: len(list(client.iterate_timeline("product", "KETTLE-17", 5))) == 2,
        "it has no new price",
    )
    newest, first = client.iterate_timeline("product", "KETTLE-17", 5)
    assert (first["authorName"], newest["authorName"]) == ("Начальные данные", "Кузнецов Борис")
    [price] = [change for change in newest["changes"] if change["path"] == "/price"]
    assert (price["old"], price["new"]) == ("2490.00", "2590.00")
    assert link[1] in client.open_screen(link[0].removeprefix(client.address))
    assert all(re.search(rf"^ +{login} ", text, re.MULTILINE) for login in LOGINS)
    demo.process.send_signal(signal.SIGINT)
    assert demo.wait_for_end()[0] == 0
    assert list_processes(home) == []

    second_demo = RunningDemo(home, "--port", str(find_free_port()), "--no-simulate")
    client = DemoClient(find_address(second_demo.read_until(READY)), "support", "support")
    assert list(client.iterate_timeline("product-instance", link[1], 50)) == versions
    os.killpg(second_demo.process.pid, signal.SIGTERM)
    assert second_demo.wait_for_end()[0] == 0
    assert list_processes(home) == []


def is_server(process: psutil.Process) -> bool:
    """Return whether a process is PostgreSQL or the broker, which outlive a killed demo.

    Child processes of PostgreSQL do not count: their command lines name no directory.
    """
    with suppress(psutil.NoSuchProcess):
        return process.name() in ("postgres", "tansu")
    return False


def test_demo_interrupted_at_its_start_leaves_no_process(home: Path) -> None:
    demo = RunningDemo(home)
    demo.read_until("Annals  ")
    wait_until(lambda: any(map(is_server, list_processes(home))), "no server starts")
    demo.process.send_signal(signal.SIGINT)
    assert demo.wait_for_end()[0] == 0
    assert list_processes(home) == []


def test_new_demo_takes_over_the_servers_of_a_killed_demo(home: Path) -> None:
    """Also, when one process of the new demo ends, the demo reports this and ends the others."""
    port = find_free_port()
    demo = RunningDemo(home, "--port", str(port), "--no-simulate")
    demo.read_until(READY)
    assert not all(is_server(candidate) for candidate in list_processes(home))
    servers = {
        candidate.pid for candidate in list_processes(home) if "-D" in get_command_line(candidate)
    }
    demo.process.kill()
    demo.wait_for_end()
    wait_until(
        lambda: all(is_server(candidate) for candidate in list_processes(home)),
        "its processes go on",
    )

    second_demo = RunningDemo(home, "--port", str(port), "--no-simulate")
    text = second_demo.read_until(READY)
    assert servers
    assert servers <= {candidate.pid for candidate in list_processes(home)}
    assert "DATABASE_URL is set but ignored" in text
    assert str(home) in text
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as response:
        assert response.status == 200
    code, text = RunningDemo(home).wait_for_end()
    assert (code, "already running" in text) == (1, True)
    code, text = RunningDemo(home.with_name("other"), "--port", str(port)).wait_for_end()
    assert (code, f"Port {port} is in use" in text) == (1, True)

    consumer = second_demo.find_child("consume")
    wait_until(lambda: consumer.net_connections("tcp"), "the consumer does not connect")
    consumer.terminate()
    code, text = second_demo.wait_for_end()
    assert code == 1
    assert re.search(r"consume ended with 0:\n(.*\n)*stopped: \d+ read", text), text
    assert list_processes(home) == []
