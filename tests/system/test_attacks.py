"""Nobody can make the web stop: small versions of the attacks of `python -m tests.attack`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from annals.embedded import logins
from annals.embedded.postgres import Postgres
from tests.attack.__main__ import ATTACKS
from tests.attack.web import Site
from tests.processes import own_database, server

__all__ = ["server"]

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def target(server: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder: Path = tmp_path_factory.mktemp("attacks")
    with own_database(server) as database:
        made = Site(folder, database.url, database.url_of(logins.WEB))
        made.prepare()
        with made.one_server():
            yield made


@pytest.mark.parametrize("name", ATTACKS)
def test_no_attack_succeeds(target: Site, name: str) -> None:
    figures = list(ATTACKS[name](target, fast=True))
    assert figures
    assert [figure.line() for figure in figures if figure.succeeds] == []
