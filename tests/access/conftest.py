"""Fixtures of the tests about who may do what."""

from collections.abc import Iterator
from typing import Any

import pytest

from annals.access.oidc.discovery import discoveries
from tests.access.issuer import Issuer, declare
from tests.db.conftest import own_labels, store
from tests.db.installation import in_both, installation
from tests.processes import server

__all__ = ["installation", "own_labels", "server", "store"]


# What exports: where the tables are distributed, it asks the nodes for their other writers.
ONCE = {
    "test_a_document_with_nul_is_masked_too",
    "test_an_export_is_masked_unless_somebody_says_why",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    in_both(metafunc, {"test_masking", "test_need_to_know"}, but=ONCE)


@pytest.fixture
def issuer(settings: Any) -> Iterator[Issuer]:
    """A provider, with which people log in and whose tokens the API accepts."""
    with Issuer() as running:
        running.metadata = {
            "authorization_endpoint": f"{running.url}/authorize",
            "token_endpoint": f"{running.url}/token",
        }
        settings.ROOT_URLCONF = "tests.access.oidc_urls"
        declare(settings, running)
        yield running
    discoveries.cache_clear()
