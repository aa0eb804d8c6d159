"""Without Java, Maven, Chromium or promtool tests are skipped with the reason; in CI they fail."""

from collections.abc import Callable
from pathlib import Path

import pytest

from annals.embedded.process import EmbeddedError
from tests import need
from tests.apache import kafka_jars


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    "needed, named",
    [
        (need.java, "Java 17"),
        (need.maven, "Maven"),
        (need.chromium, "Chromium"),
        (need.promtool, "promtool"),
    ],
)
def test_what_is_missing_skips_or_fails_by_name(
    needed: Callable[[], object], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANNALS_TEST_ALL", raising=False)
    with pytest.raises(pytest.skip.Exception, match=named):
        needed()
    monkeypatch.setenv("ANNALS_TEST_ALL", "1")
    with pytest.raises(pytest.fail.Exception, match=named):
        needed()


@pytest.mark.usefixtures("bare")
def test_an_old_java_is_not_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ANNALS_TEST_ALL", raising=False)
    program = tmp_path / "java"
    program.write_text("#!/bin/sh\necho 'openjdk version \"11.0.1\" 2018-10-16' >&2\n")
    program.chmod(0o755)
    with pytest.raises(pytest.skip.Exception, match=r'found: .*"11\.0\.1"'):
        need.java()


@pytest.mark.usefixtures("bare")
def test_fetching_without_maven_says_so() -> None:
    assert not kafka_jars.cached()
    with pytest.raises(EmbeddedError, match="install it"):
        kafka_jars.fetch()
