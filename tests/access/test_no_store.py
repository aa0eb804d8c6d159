"""No answer may be kept by a browser or a proxy: every address, with every outcome."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from django.contrib.auth.models import User
from django.core.signals import request_finished
from django.db import close_old_connections
from django.test import Client

from annals.access.journal import middleware
from annals.access.journal.write import JournalError
from history.api.access import ALLOWANCES
from tests.access.test_permissions import ENTITY, MATRIX, filled
from tests.db.conftest import store

__all__ = ["filled", "store"]

NOWHERE = ["/", "/nowhere", "/api", "/api/nowhere", "/admin/nowhere/", "/static/nowhere.css"]
PROBES = ["/healthz", "/readyz", "/metrics"]


@pytest.fixture
def addresses(filled: dict[str, object]) -> list[str]:
    """Every address of the site."""
    found = []
    for pattern, (address, _) in MATRIX.items():
        model = "/".join(pattern.split("/")[1:3])
        found.append(f"/{address.format(pk=filled.get(model))}")
    return [*found, *NOWHERE, *PROBES]


@pytest.fixture
def admin(client: Client, filled: dict[str, object]) -> Iterator[Client]:
    client.force_login(User.objects.get(username="admin"))
    client.raise_request_exception = False
    ALLOWANCES.clear()
    yield client
    ALLOWANCES.clear()


def kept(client: Client, addresses: list[str], method: str = "get", **more: Any) -> set[int]:
    """The statuses of the answers; none of them may be kept."""
    statuses = set()
    for address in addresses:
        answer = getattr(client, method)(address, **more)
        assert answer.headers["Cache-Control"] == "no-store", (address, answer.status_code)
        statuses.add(answer.status_code)
    return statuses


@pytest.mark.parametrize("role", [None, "support", "admin"])
def test_for_every_role(role: str | None, admin: Client, addresses: list[str]) -> None:
    admin.logout()
    if role is not None:
        admin.force_login(User.objects.get(username=role))
    expected = {200, 404, *((401,) if role is None else (302, 403) if role != "admin" else (403,))}
    assert kept(admin, addresses) >= expected


@pytest.mark.parametrize("method", ["head", "options", "post"])
def test_for_every_method(method: str, admin: Client, addresses: list[str]) -> None:
    found = kept(admin, [each for each in addresses if "/password" not in each], method)
    assert ({"head": 200, "options": 204}.get(method, 405)) in found


def test_not_modified(admin: Client) -> None:
    address = f"/api/v1/{ENTITY}/versions/0"
    tag = admin.get(address).headers["ETag"]
    assert kept(admin, [address], headers={"If-None-Match": tag}) == {304}


def test_a_bad_request(admin: Client, addresses: list[str]) -> None:
    api = [each.partition("?")[0] + "?nonsense=1" for each in addresses if "/api/v1/" in each]
    assert kept(admin, api) == {400}
    with_nul = [f"/api/v1/{ENTITY}%00", f"/admin/{ENTITY}%00/", "/api/v1/search?q=%00"]
    assert kept(admin, with_nul) >= {400}


@pytest.mark.parametrize("https", [False, True])
def test_a_strange_host(admin: Client, addresses: list[str], settings: Any, https: bool) -> None:
    settings.SECURE_SSL_REDIRECT = https
    asked = [each for each in addresses if each not in PROBES]
    assert kept(admin, asked, headers={"Host": "evil.example"}) == {400}


def test_https_only(admin: Client, addresses: list[str], settings: Any) -> None:
    settings.SECURE_SSL_REDIRECT = True
    asked = [each for each in addresses if each not in PROBES and "/static/" not in each]
    assert kept(admin, asked) == {301}


def test_too_many_requests(admin: Client, settings: Any) -> None:
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, api_rate=1)
    assert kept(admin, [f"/api/v1/{ENTITY}"]) == {200}
    assert kept(admin, [f"/api/v1/{ENTITY}", "/api/v1/search?q=1"]) == {429}


def test_without_the_journal(
    admin: Client, addresses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        # The answer that may not be shown is closed within the request, and with it the test's
        # connection; Django's test client prevents that only at the end of a request.
        request_finished.disconnect(close_old_connections)
        raise JournalError("down")

    monkeypatch.setattr(middleware, "write", fail)
    assert 503 in kept(admin, addresses)


@pytest.mark.parametrize(
    "place",
    [
        "django.middleware.security.SecurityMiddleware.process_request",
        "annals.access.journal.middleware.action_of",
        "django.middleware.clickjacking.XFrameOptionsMiddleware.process_response",
    ],
)
def test_a_fault_anywhere(
    place: str, admin: Client, addresses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(place, fail)
    asked = [each for each in addresses if each not in PROBES and "/static/" not in each]
    assert kept(admin, asked) == {500}


def test_static_files_may_be_kept(client: Client, db: None) -> None:
    answer = client.get("/static/history/annals.css")
    answer.getvalue()  # a file is closed at its end
    assert (answer.status_code, "max-age" in answer.headers["Cache-Control"]) == (200, True)
