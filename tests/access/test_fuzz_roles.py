"""Schemathesis as each role and with each kind of token: no answer that the document does not
have, and none with a 5xx."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from annals.access.oidc.discovery import discoveries
from annals.access.oidc.providers import Provider
from annals.access.roles import ROLES
from tests.access.issuer import CLIENT, SCOPE, Issuer
from tests.access.masked_answers import mark
from tests.db.conftest import store
from tests.db.test_api_fuzz import ANSWERS, CALLS, api

__all__ = ["api", "store"]

TOKENS = {"token": SCOPE, "token for sensitive fields": f"{SCOPE} all", "token without": "openid"}
# What `A1` is in place of, so that half of the questions are about something that is there.
THERE = {"entity": "product-instance", "id": "A1", "productInstanceId": "A1", "version": 3}
few = settings(
    max_examples=4, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)


@pytest.fixture
def issuer(settings: Any) -> Iterator[Issuer]:
    with Issuer() as running:
        bank = Provider(
            name="bank", title="B", issuer=running.url, client_id=CLIENT, sensitive_scope="all"
        )
        settings.OIDC_PROVIDERS = (bank,)
        discoveries.cache_clear()
        mark("/rate")
        yield running
    mark()
    discoveries.cache_clear()


def statuses(
    api: Any, call: str, headers: Mapping[str, str], there: Mapping[str, object]
) -> set[int]:
    """Of the answers to some requests that fit the document. there: what parameters of the address
    are."""
    found = set()

    @few
    @given(case=api.find_operation_by_id(call).as_strategy())
    def answered(case: Any) -> None:
        for name in set(case.path_parameters or {}) & set(there):
            case.path_parameters[name] = there[name]
        found.add(case.call_and_validate(headers=headers, checks=ANSWERS).status_code)

    answered()
    return found


@pytest.mark.parametrize("caller", ["nobody", *ROLES, *TOKENS])
def test_no_caller_meets_a_failure(caller: str, api: Any, issuer: Issuer) -> None:
    headers = {"Accept-Encoding": "identity"}
    if caller in ROLES:
        secret = base64.b64encode(f"{caller}:{caller}".encode()).decode()
        headers["Authorization"] = f"Basic {secret}"
    elif caller in TOKENS:
        headers["Authorization"] = f"Bearer {issuer.token(scope=TOKENS[caller])}"
    found = {
        status
        for call in CALLS
        for there in (THERE, {})
        for status in statuses(api, call, headers, there)
    }
    expected = {"nobody": {401}, "token without": {403}, "ops": {200, 403}}
    assert found >= expected.get(caller, {200, 404})
    assert found <= {200, 400, 401, 403, 404}
