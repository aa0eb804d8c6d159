"""Only the jars whose SHA-256 is in the repository are run."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from annals.embedded.process import EmbeddedError
from tests.apache import kafka_jars

JARS = {f"{name}.jar": f"the bytes of {name}".encode() for name in ("kafka", "slf4j", "zstd")}


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache with three jars, and the list of these three."""
    sums = tmp_path / "sums"
    lines = [f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in JARS.items()]
    sums.write_text("".join(lines))
    monkeypatch.setattr(kafka_jars, "SUMS", sums)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "annals" / f"apache-kafka-{kafka_jars.VERSION}"
    folder.mkdir(parents=True)
    for name, data in JARS.items():
        (folder / name).write_bytes(data)
    return folder


def test_the_listed_jars_are_taken(cache: Path) -> None:
    assert kafka_jars.fetch() == cache


def test_a_changed_jar_is_refused(cache: Path) -> None:
    (cache / "kafka.jar").write_bytes(b"the bytes of somebody else")
    with pytest.raises(EmbeddedError, match=r": in .*, kafka\.jar is missing, unknown or changed"):
        kafka_jars.fetch()


def test_a_missing_and_an_unknown_jar_are_refused(cache: Path) -> None:
    (cache / "slf4j.jar").rename(cache / "another.jar")
    with pytest.raises(EmbeddedError, match=r"another\.jar, slf4j\.jar are missing.*2 of 3"):
        kafka_jars.fetch()


def test_the_list_is_of_this_version() -> None:
    names = kafka_jars.SUMS.read_text().split()[1::2]
    for _, artifact, version in kafka_jars.ARTIFACTS:
        assert f"{artifact}-{version}.jar" in names
