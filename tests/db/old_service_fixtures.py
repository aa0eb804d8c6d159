"""Fixtures of the tests about the old service, which Annals replaces."""

from collections.abc import Iterator

import pytest
from django.conf import settings

from annals.configuration import env
from history.common import clock
from history.timeline.fallback import client as calls
from tests.old_service import OldServiceServer


@pytest.fixture
def own_breaker() -> Iterator[calls.CircuitBreaker]:
    """Yield the circuit breaker of this process, without failures of other tests."""
    calls.BREAKER.reset()
    yield calls.BREAKER
    calls.BREAKER.reset()


def use_old_service(
    service: OldServiceServer, monkeypatch: pytest.MonkeyPatch, **more: str
) -> None:
    """Configure this server as the old service of Annals; `more` has further settings."""
    variables = {
        "ANNALS_DEMO": "true",
        "ANNALS_LANGUAGE": "en",
        "ANNALS_FALLBACK_URL": service.url,
        "ANNALS_FALLBACK_UNTIL": f"{clock.now():%Y-%m-%d}",
        "ANNALS_FALLBACK_SECONDS": "15",
        **more,
    }
    monkeypatch.setattr(settings, "ANNALS", env.read_settings(variables))


@pytest.fixture
def old(
    own_breaker: calls.CircuitBreaker, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OldServiceServer]:
    with OldServiceServer() as service:
        use_old_service(service, monkeypatch)
        yield service
