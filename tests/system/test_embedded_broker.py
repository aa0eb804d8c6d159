"""The embedded broker: a real one, found again by its file."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from annals.embedded import broker as module
from annals.embedded import process
from annals.embedded.broker import Broker
from annals.embedded.process import EmbeddedError

START = """
import sys
from annals.embedded.broker import Broker
broker = Broker(sys.argv[1])
print(broker.start(), broker.pid(), broker.bootstrap_servers())
"""


@pytest.fixture
def broker(embedded: Broker) -> Broker:
    return embedded


def test_starting_a_running_one_finds_it(broker: Broker) -> None:
    again = Broker(broker.home)
    assert again.running()
    assert again.start() is False
    assert (again.pid(), again.port()) == (broker.pid(), broker.port())


def test_a_restart_keeps_the_port(broker: Broker) -> None:
    port = broker.port()
    assert broker.stop() is True
    assert not broker.running()
    assert broker.stop() is False
    assert broker.start() is True
    broker.kill()
    assert broker.pid() is None
    assert broker.start() is True
    assert broker.port() == port


def test_two_processes_starting_it_at_once_share_one(tmp_path: Path) -> None:
    home = tmp_path / "broker"
    command = [sys.executable, "-c", START, str(home)]
    starters = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [starter.communicate(timeout=60)[0].split() for starter in starters]
    broker = Broker(home)
    try:
        assert sorted(line[0] for line in said) == ["False", "False", "True"]
        expected = (str(broker.pid()), broker.bootstrap_servers())
        assert {(line[1], line[2]) for line in said} == {expected}
    finally:
        assert broker.stop() is True


def test_a_file_that_names_somebody_elses_process_is_stale(broker: Broker) -> None:
    broker.kill()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        # It has a command line for sure when it has answered; right after its start it may not.
        assert other.stdin
        assert other.stdout
        other.stdin.write(b"here\n")
        other.stdin.flush()
        assert other.stdout.readline() == b"here\n"
        text = broker.state.read_text()
        broker.state.write_text(f'{{"pid": {other.pid}, "PLAINTEXT": {broker.port()}}}')
        assert text != broker.state.read_text()
        assert broker.pid() is None
        assert broker.stop() is False
        assert broker.start() is True
        assert other.poll() is None
        other.kill()


def test_a_port_that_another_program_took_is_not_taken_for_its_own(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.stop()
    with socket.create_server((process.HOST, 0)) as other:
        taken = other.getsockname()[1]
        found = iter([[taken]])  # free when it was asked for, and then taken
        free_ports = process.free_ports
        monkeypatch.setattr(process, "free_ports", lambda asked: next(found, free_ports(asked)))
        assert broker.start() is True
        assert broker.port() != taken
        assert broker.running()


def test_a_program_that_lost_its_executable_bit_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "unpacked" / "bin"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "tansu").write_text("#!/bin/sh\n")
    (package / "tansu").chmod(0o644)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(module, "PACKAGE", "unpacked")
    copy = module.program(tmp_path)
    assert copy == tmp_path / "tansu"
    subprocess.run([copy], check=True)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PACKAGE", "no_such_package")
    with pytest.raises(EmbeddedError, match=r"annals\[embedded\]"):
        Broker(tmp_path / "broker").start()
