"""Bearer tokens at the API: 200, 401, 403 and 503, each with the challenge that fits."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from msgspec import structs

from annals.access.oidc.discovery import discoveries
from annals.access.oidc.providers import Provider
from tests.access.issuer import CLIENT, SCOPE, Issuer
from tests.access.masked_answers import mark
from tests.db.store import Store

ADDRESS = "/api/v1/history/product-instance/A1"


@pytest.fixture
def issuer(settings: Any) -> Iterator[Issuer]:
    with Issuer() as running:
        settings.OIDC_PROVIDERS = (
            Provider(name="bank", title="Bank", issuer=running.url, client_id=CLIENT),
        )
        discoveries.cache_clear()
        yield running
    discoveries.cache_clear()


@pytest.fixture
def stored(store: Store) -> Store:
    store.add("A1", 0, {"rate": "1"}, 0)
    return store


def ask(client: Client, token: str, address: str = ADDRESS) -> Any:
    return client.get(address, headers={"Authorization": f"Bearer {token}"})


def test_a_good_token_reads(client: Client, issuer: Issuer, stored: Store) -> None:
    for address in (ADDRESS, "/api/v1/search?q=A1", "/api/v1/completeness"):
        assert ask(client, issuer.token(), address).status_code == 200


def test_a_provider_may_name_its_programs_by_their_subject(
    client: Client, issuer: Issuer, stored: Store, settings: Any
) -> None:
    token = issuer.token(client_id=None)
    assert ask(client, token).status_code == 401
    (bank,) = settings.OIDC_PROVIDERS
    settings.OIDC_PROVIDERS = (structs.replace(bank, client_claim="sub"),)
    discoveries.cache_clear()
    assert ask(client, token).status_code == 200


def test_the_log_names_the_program(
    client: Client, issuer: Issuer, stored: Store, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "annals.observe.requests"):
        ask(client, issuer.token())
    assert [record.user for record in caplog.records if hasattr(record, "user")] == ["audit-system"]


def test_no_token(client: Client, issuer: Issuer, stored: Store) -> None:
    answer = client.get(ADDRESS)
    assert answer.status_code == 401
    assert 'Bearer realm="annals"' in answer.headers["WWW-Authenticate"]


@pytest.mark.parametrize(
    "changed, why",
    [
        ({"exp": 1}, "The token has expired."),
        ({"iss": "https://evil.example"}, "The token's issuer is not accepted."),
        ({"aud": "other"}, "The token is for another audience."),
    ],
)
def test_a_refused_token_says_why(
    changed: dict[str, object], why: str, client: Client, issuer: Issuer, stored: Store
) -> None:
    answer = ask(client, issuer.token(**changed))  # type: ignore[arg-type]
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == (
        f'Bearer realm="annals", error="invalid_token", error_description="{why}"'
    )
    assert json.loads(answer.content)["error"]["code"] == "not_authenticated"


def test_a_program_reads_sensitive_fields_only_with_the_scope_for_them(
    client: Client, issuer: Issuer, stored: Store, settings: Any
) -> None:
    mark("/rate")
    try:
        whole = issuer.token(scope=f"{SCOPE} whole-documents")
        assert b'"rate":"masked:' in ask(client, issuer.token()).content
        assert b'"rate":"masked:' in ask(client, whole).content
        (bank,) = settings.OIDC_PROVIDERS
        settings.OIDC_PROVIDERS = (structs.replace(bank, sensitive_scope="whole-documents"),)
        discoveries.cache_clear()
        assert b'"rate": "1"' in ask(client, whole).content
        assert b'"rate":"masked:' in ask(client, issuer.token()).content
    finally:
        mark()


def test_a_token_without_the_scope(client: Client, issuer: Issuer, stored: Store) -> None:
    answer = ask(client, issuer.token(scope="openid"))
    assert answer.status_code == 403
    assert answer.headers["WWW-Authenticate"] == (
        f'Bearer realm="annals", error="insufficient_scope", scope="{SCOPE}"'
    )


def test_a_refused_token_is_not_in_the_log(
    client: Client, issuer: Issuer, stored: Store, caplog: pytest.LogCaptureFixture
) -> None:
    token = issuer.token(exp=1)
    with caplog.at_level(logging.DEBUG):
        ask(client, token)
    assert "expired" in caplog.text
    assert token not in caplog.text
    assert token.rpartition(".")[2] not in caplog.text


def test_an_issuer_that_is_down(client: Client, issuer: Issuer, stored: Store) -> None:
    issuer.down = True
    answer = ask(client, issuer.token())
    assert answer.status_code == 503
    assert json.loads(answer.content)["error"]["code"] == "unavailable"
    assert answer.headers["Retry-After"] == "5"


def test_a_bearer_token_opens_no_screen(client: Client, issuer: Issuer, stored: Store) -> None:
    answer = ask(client, issuer.token(), "/admin/history/product-instance/A1/")
    assert answer.status_code == 302
