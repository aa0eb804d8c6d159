"""An identity provider that does not answer occupies only a few threads of a web process."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from annals.access.oidc.discovery import MIN_INTERVAL_SECONDS, get_discoveries
from tests.access.issuer import LocalIssuer
from tests.access.test_hostile import ADDRESS, begin_login
from tests.consuming import wait_until

MAX_WAITING = 4  # of the 16 threads of a web process
REQUESTS = 2 * MAX_WAITING

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(REQUESTS) as threads:
        yield threads


def get_status(ask: Callable[[], Any]) -> int:
    """Return the HTTP status that `ask` gets, and close the database connection of this thread."""
    try:
        return int(ask().status_code)
    finally:
        connection.close()


def test_logins_occupy_few_threads_when_token_endpoint_hangs(
    issuer: LocalIssuer, pool: ThreadPoolExecutor
) -> None:
    """Other people who log in get 503 at once. If they load the page again, their login
    continues."""
    browsers = [Client() for _ in range(REQUESTS)]
    callbacks = [begin_login(item, issuer) for item in browsers]
    issuer.id_token = issuer.make_token()
    issuer.hangs = "/realm/token"
    pending_logins = [
        pool.submit(get_status, lambda i=i: browsers[i].get(callbacks[i]))  # type: ignore[misc]
        for i in range(MAX_WAITING)
    ]
    wait_until(
        lambda: issuer.requests.count("/realm/token") == MAX_WAITING,
        "not all logins wait for the token endpoint",
    )
    for browser, callback in list(zip(browsers, callbacks, strict=True))[MAX_WAITING:]:
        answer = browser.get(callback)
        assert answer.status_code == 503
        assert answer.headers["Retry-After"] == "5"
    assert Client().get("/oidc/bank/login/").status_code == 503
    assert Client().get("/admin/login/").status_code == 200
    assert issuer.requests.count("/realm/token") == MAX_WAITING
    issuer.go_on.set()
    # The ID token has the nonce of the last login, so only that login succeeds.
    assert [entry.result() for entry in pending_logins] == [403] * MAX_WAITING
    assert browsers[-1].get(callbacks[-1]).status_code == 302


def test_bearer_tokens_occupy_few_threads_when_key_endpoint_hangs(
    issuer: LocalIssuer, pool: ThreadPoolExecutor
) -> None:
    """Only tokens with unknown keys wait for the endpoint. Tokens with known keys are still
    accepted."""
    headers = {"Authorization": f"Bearer {issuer.make_token()}"}
    assert Client().get(ADDRESS, headers=headers).status_code == 404
    issuer.requests.clear()
    issuer.hangs = "/realm/keys"
    end_pause()
    unknown = {"Authorization": f"Bearer {issuer.make_token(kid='unknown')}"}
    pending_requests = [
        pool.submit(get_status, lambda: Client().get(ADDRESS, headers=unknown))
        for _ in range(REQUESTS)
    ]
    wait_until(
        lambda: sum(item.done() for item in pending_requests) == REQUESTS - MAX_WAITING - 1,
        "too many requests wait for the key endpoint",
    )
    assert {entry.result() for entry in pending_requests if entry.done()} == {503}
    assert Client().get(ADDRESS, headers=headers).status_code == 404
    issuer.go_on.set()
    assert sorted(element.result() for element in pending_requests) == [401] * (MAX_WAITING + 1) + [
        503
    ] * (MAX_WAITING - 1)


def end_pause() -> None:
    """Let Annals fetch the provider's keys again, as if the last fetch were not recent."""
    (actual,) = get_discoveries().values()
    actual._asked_at -= MIN_INTERVAL_SECONDS
