"""scripts/demo as somebody runs it: from another directory, in a path with a space, interrupted."""

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

from annals.demo.client import LOGINS, Client
from annals.embedded import process
from annals.embedded.postgres import Postgres
from tests.consuming import until

DEMO = Path(__file__).resolve().parents[2] / "scripts" / "demo"
READY = "Ctrl-C stops everything"
PATIENCE_S = 300

pytestmark = pytest.mark.system


class Demo:
    """A running scripts/demo and what it prints."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self.home = home
        environment = {name: text for name, text in os.environ.items() if name != "ANNALS_DEMO"}
        self.process = subprocess.Popen(
            [DEMO, *arguments],
            cwd=home.parent,
            env={**environment, "ANNALS_HOME": home.name},  # relative: to where one stands
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

    def until(self, words: str) -> str:
        """Everything printed until a line with these words; fails where the demo ends before."""
        while (line := self._lines.get(timeout=PATIENCE_S)) is not None:
            self.text += line
            if words in line:
                return self.text
        pytest.fail(f"ended without {words!r}:\n{self.text}")

    def end(self) -> tuple[int, str]:
        """Wait for its end; the exit code, and everything printed."""
        while (line := self._lines.get(timeout=PATIENCE_S)) is not None:
            self.text += line
        return self.process.wait(PATIENCE_S), self.text

    def child(self, name: str) -> psutil.Process:
        """A process of the demo, by a word of its command line."""
        found = [each for each in processes(self.home) if name in command_line(each)]
        return min(found, key=lambda each: each.create_time())


def processes(home: Path) -> list[psutil.Process]:
    """Everything that runs for this ANNALS_HOME, whoever its parent is by now."""
    found = []
    for each in psutil.process_iter():
        try:
            if each.status() == psutil.STATUS_ZOMBIE:
                continue
            words = " ".join(each.cmdline())
            if str(home) in words or each.environ().get("ANNALS_HOME") == str(home):
                found.append(each)
        except psutil.Error:
            continue
    return found


def command_line(each: psutil.Process) -> list[str]:
    """Its words; none for a process that has ended, as PostgreSQL's children do at any time."""
    with suppress(psutil.NoSuchProcess):
        return list(each.cmdline())
    return []


@pytest.fixture
def home() -> Iterator[Path]:
    """An ANNALS_HOME with a space and Cyrillic in its path, which is not there yet; nothing of it
    may run afterwards.

    Not in tmp_path: each run of pytest by root closes the directory above it to other users, and
    the PostgreSQL that root starts is another user's.
    """
    with tempfile.TemporaryDirectory(prefix="annals demo ") as folder:
        home = Path(folder) / "мой дом" / "home"
        home.parent.mkdir()
        yield home
        for left in processes(home):
            left.kill()


# The sessions of cron's jobs, while one runs.
CRON = {
    ("annals", "owner_login"),
    ("annals", "consumer_login"),
    ("annals-retry", "consumer_login"),
}


def logged_in(home: Path) -> set[tuple[str, str]]:
    """The sessions of the demo's processes: what each says it is, and its login."""
    with psycopg.connect(Postgres(home / "postgres").url()) as plain:
        return set(
            plain.execute(
                "SELECT application_name, usename FROM pg_stat_activity"
                " WHERE application_name LIKE 'annals%'"
            ).fetchall()
        )


def free_port() -> int:
    (port,) = process.free_ports([None])
    return port


def address(text: str) -> str:
    found = re.search(r"http://localhost:\d+", text)
    assert found, text
    return found[0]


def change_price(shop: str) -> None:
    """As a person does it, in the admin of the example shop."""
    boris = Client(shop, "boris", "boris", csrf_cookie="shop_csrf")
    listed = boris.screen("/admin/orders/product/?q=KETTLE-17")
    found = re.search(r"/admin/orders/product/\d+/change/", listed)
    assert found, listed
    typed = r'<input type="(?:hidden|text|number)" name="([^"]*)"(?: value="([^"]*)")?'
    form = {name: html.unescape(value) for name, value in re.findall(typed, boris.screen(found[0]))}
    assert "errornote" not in boris.open(found[0], {**form, "price": "2590.00", "on_sale": "on"})


def test_it_starts_serves_and_leaves_nothing_behind_twice(home: Path) -> None:
    """First with the example shop, then without it, over the same data. An application that was
    never stored is not shown."""
    home.mkdir()
    (home / "showcase").write_text("lost-with-the-broker")
    demo = Demo(home, "--port", str(free_port()), "--with-shop")
    text = demo.until(READY)
    link = re.search(r"http\S+/admin/history/product-instance/(\w+)/", text)
    assert link, text
    assert (home / "showcase").read_text() == link[1]
    client = Client(address(text), "support", "support")
    versions = list(client.timeline("product-instance", link[1], 50))
    assert len(versions) > 1
    assert logged_in(home) - CRON == {("annals", "web_login"), ("annals-consume", "consumer_login"),
        ("annals-beat", "consumer_login")}  # fmt: skip
    shown = re.search(r"^Shop +http://localhost:(\d+)/admin/$", text, re.MULTILINE)
    assert shown, text
    assert "anna and boris change prices and orders" in text
    change_price(f"http://127.0.0.1:{shown[1]}")
    until(lambda: len(list(client.timeline("product", "KETTLE-17", 5))) == 2, "it has no new price")
    newest, first = client.timeline("product", "KETTLE-17", 5)
    assert (first["authorName"], newest["authorName"]) == ("Начальные данные", "Кузнецов Борис")
    [price] = [each for each in newest["changes"] if each["path"] == "/price"]
    assert (price["old"], price["new"]) == ("2490.00", "2590.00")
    assert link[1] in client.screen(link[0].removeprefix(client.address))
    assert all(re.search(rf"^ +{login} ", text, re.MULTILINE) for login in LOGINS)
    demo.process.send_signal(signal.SIGINT)
    assert demo.end()[0] == 0
    assert processes(home) == []

    again = Demo(home, "--port", str(free_port()), "--no-simulate")
    client = Client(address(again.until(READY)), "support", "support")
    assert list(client.timeline("product-instance", link[1], 50)) == versions
    os.killpg(again.process.pid, signal.SIGTERM)
    assert again.end()[0] == 0
    assert processes(home) == []


def is_server(each: psutil.Process) -> bool:
    """PostgreSQL (its children name no directory) or the broker: they outlive a killed demo. False
    for a process that has ended."""
    with suppress(psutil.NoSuchProcess):
        return each.name() in ("postgres", "tansu")
    return False


def test_interrupted_while_it_starts_it_leaves_nothing_behind(home: Path) -> None:
    demo = Demo(home)
    demo.until("Annals  ")
    until(lambda: any(is_server(each) for each in processes(home)), "no server starts")
    demo.process.send_signal(signal.SIGINT)
    assert demo.end()[0] == 0
    assert processes(home) == []


def test_a_killed_demo_is_followed_by_one_that_nobody_disturbs(home: Path) -> None:
    """Its servers are used again. When one of its processes ends, all do, and it says why."""
    port = free_port()
    demo = Demo(home, "--port", str(port), "--no-simulate")
    demo.until(READY)
    assert not all(is_server(each) for each in processes(home))
    servers = {each.pid for each in processes(home) if "-D" in command_line(each)}
    demo.process.kill()
    demo.end()
    until(lambda: all(is_server(each) for each in processes(home)), "its processes go on")

    again = Demo(home, "--port", str(port), "--no-simulate")
    text = again.until(READY)
    assert servers
    assert servers <= {each.pid for each in processes(home)}
    assert "DATABASE_URL is set but ignored" in text
    assert str(home) in text
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
        assert answer.status == 200
    code, text = Demo(home).end()
    assert (code, "already running" in text) == (1, True)
    code, text = Demo(home.with_name("other"), "--port", str(port)).end()
    assert (code, f"Port {port} is in use" in text) == (1, True)

    consumer = again.child("consume")
    until(lambda: consumer.net_connections("tcp"), "the consumer does not connect")
    consumer.terminate()
    code, text = again.end()
    assert code == 1
    assert re.search(r"consume ended with 0:\n(.*\n)*stopped: \d+ read", text), text
    assert processes(home) == []
