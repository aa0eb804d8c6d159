"""The demo's supervisor, without servers."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest

from annals.demo.supervisor import LOOPBACK, MIN_FREE_BYTES, DemoError, Supervisor, hold


def test_a_full_disk_ends_the_demo_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Supervisor(tmp_path).checkpoint()
    usage = shutil.disk_usage(tmp_path)._replace(free=MIN_FREE_BYTES - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(DemoError, match=rf"The disk with {tmp_path} is full: 31 MB are free"):
        Supervisor(tmp_path).checkpoint()


@pytest.mark.parametrize("family, host", LOOPBACK, ids=["IPv4", "IPv6"])
def test_a_port_that_another_program_uses_on_one_address_is_not_held(
    family: int, host: str
) -> None:
    with socket.socket(family) as other:
        other.bind((host, 0))
        other.listen()
        assert hold(other.getsockname()[1]) is None


def test_a_held_port_is_the_same_on_all_addresses_and_free_again_after_it() -> None:
    port = hold(0)
    assert port is not None
    assert {each.getsockname()[1] for each in port.sockets} == {port.number}
    assert hold(port.number) is None
    port.close()
    again = hold(port.number)
    assert again is not None
    again.close()
