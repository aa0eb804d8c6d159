"""Fixtures for the tests of logins, permissions, masking and the access journal."""

from collections.abc import Iterator
from typing import Any

import pytest

from annals.access.oidc.discovery import get_discoveries
from tests.access.issuer import LocalIssuer, declare_provider
from tests.db.conftest import own_labels, store
from tests.processes import server

__all__ = ["own_labels", "server", "store"]


@pytest.fixture
def issuer(settings: Any) -> Iterator[LocalIssuer]:
    """Yield a running local provider that Annals accepts for logins and for tokens at the API."""
    with LocalIssuer() as running:
        running.metadata = {
            "authorization_endpoint": f"{running.url}/authorize",
            "token_endpoint": f"{running.url}/token",
        }
        settings.ROOT_URLCONF = "tests.access.oidc_urls"
        declare_provider(settings, running)
        yield running
    get_discoveries.cache_clear()
