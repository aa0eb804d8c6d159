"""The web server withstands small versions of the attacks of `python -m tests.attack`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from annals.embedded import logins
from annals.embedded.postgres import EmbeddedPostgres
from tests.attack.__main__ import ATTACKS
from tests.attack.web import AttackedSite
from tests.processes import create_own_database, server

__all__ = ["server"]

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def target(
    server: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AttackedSite]:
    folder: Path = tmp_path_factory.mktemp("attacks")
    with create_own_database(server) as database:
        attacked_site = AttackedSite(folder, database.url, database.build_url(logins.WEB))
        attacked_site.prepare_tables()
        with attacked_site.share_web():
            yield attacked_site


@pytest.mark.parametrize("name", ATTACKS)
def test_web_withstands_the_short_form_of_each_attack(target: AttackedSite, name: str) -> None:
    figures = list(ATTACKS[name](target, fast=True))
    assert figures
    assert [figure.format_line() for figure in figures if figure.succeeds] == []
