"""docs/api.md: every shell and Python block runs, and every error code is explained."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from django.db import connection
from django.urls import URLPattern
from pytest_django.fixtures import transactional_db
from pytest_django.live_server_helper import LiveServer

from history.api.errors import ERROR_KINDS
from history.api.urls import urlpatterns
from history.completeness import complete_to
from history.kinds.entities import ENTITIES
from tests import required_programs
from tests.db.store import Store, minute

# pytest-django's fixture, because these tests fill more tables than tests.db.partitioned empties.
__all__ = ["transactional_db"]

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FEED = next(text for _, text in BLOCK.findall(PAGE) if '"order": "asc"' in text)
BLOCKS = [(language, text) for language, text in BLOCK.findall(PAGE) if text != FEED]


@pytest.fixture
def served_address(live_server: LiveServer) -> Iterator[dict[str, str]]:
    before = set(connection.introspection.table_names())
    store = Store()
    for version in range(4):
        store.add("A1", version, {"rate": f"1{version}.5"}, version)
    store.add("P1", 0, {"clientId": "77"}, 1, entity="participant-role")
    yield {**os.environ, "API": f"{live_server.url}/api/v1", "ID": "A1"}
    with connection.cursor() as cursor:
        for table in set(connection.introspection.table_names()) - before:
            cursor.execute(f'DROP TABLE "{table}"')


@pytest.mark.parametrize("language, text", BLOCKS, ids=[language for language, _ in BLOCKS])
def test_example_in_api_docs_runs(served_address: dict[str, str], language: str, text: str) -> None:
    if language == "sh":
        required_programs.curl()
    command = ["bash", "-euc", text] if language == "sh" else [sys.executable, "-c", text]
    finished = subprocess.run(
        command, env=served_address, capture_output=True, text=True, timeout=300
    )
    assert finished.returncode == 0, finished.stderr
    if language == "python":
        assert "Interest rate 12.5 -> 13.5" in finished.stdout
        assert finished.stdout.count("\n") == 3
    else:
        assert finished.stdout.count('{"status":"success"') == text.count("curl ")


def test_documented_feed_program_copies_each_new_version_and_continues_after_restart(
    served_address: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    completeness = complete_to.read_completeness(ENTITIES)
    copy = tmp_path / "copy"

    def run(complete: float | None) -> set[str]:
        moment = None if complete is None else minute(complete)
        state = replace(completeness, complete_to=moment)
        monkeypatch.setattr(complete_to, "read_completeness", lambda _: state)
        environment = {**served_address, "COPY": str(copy)}
        result = subprocess.run(
            [sys.executable, "-c", FEED],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert result.returncode == 0, result.stderr
        files = {file.name for file in copy.iterdir()} - {"token"}
        return {name.rpartition(" ")[0] for name in files}  # without the moment in the file name

    first = {"product-instance A1 0"}
    assert run(None) == set()
    assert run(1) == first
    assert run(1) == first
    second = {*first, *(f"product-instance A1 {number}" for number in (1, 2, 3))}
    assert run(4) == {*second, "participant-role P1 0"}
    Store().add("A2", 0, {"rate": 1}, 4)
    assert run(5) == {*second, "participant-role P1 0", "product-instance A2 0"}


def test_documentation_has_shell_and_python_examples() -> None:
    assert {language for language, _ in BLOCKS} == {"sh", "python"}


def test_documentation_lists_every_call() -> None:
    rows = set(
        re.findall(r"`((?:history|applications|search|completeness|trace|changes)[^`]*)`", PAGE)
    )
    served = {
        str(pattern.pattern).replace("<str:", "{").replace("<id:", "{").replace(">", "}")
        for pattern in urlpatterns
        if isinstance(pattern, URLPattern) and str(pattern.pattern)
    }
    assert len(served) >= 10
    assert served | {"completeness"} <= rows


def test_documentation_explains_every_error_code() -> None:
    for _, _, code in ERROR_KINDS:
        assert f"`{code}`" in PAGE
