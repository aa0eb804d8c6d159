"""The embedded broker: a real one, found again by its file."""

from pathlib import Path

import pytest

from annals.embedded import broker as module
from annals.embedded.broker import Broker
from annals.embedded.process import EmbeddedError


def test_a_restart_keeps_the_port(embedded: Broker) -> None:
    broker = embedded
    port = broker.port()
    assert broker.stop() is True
    assert not broker.running()
    assert broker.stop() is False
    assert broker.start() is True
    broker.kill()
    assert broker.pid() is None
    assert broker.start() is True
    assert broker.port() == port


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PACKAGE", "no_such_package")
    with pytest.raises(EmbeddedError, match=r"annals\[embedded\]"):
        Broker(tmp_path / "broker").start()
