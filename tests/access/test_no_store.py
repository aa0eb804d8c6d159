"""Annals forbids browsers and proxies to store an answer, at any address and with any status.

A version in the API is an exception: a client can store it, but must revalidate it before each use.
"""

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from prometheus_client import REGISTRY

from tests.access.test_permissions import MATRIX, objects_by_model
from tests.db.conftest import store

__all__ = ["objects_by_model", "store"]

NOWHERE = ["/", "/nowhere", "/api", "/api/nowhere", "/admin/nowhere/", "/static/nowhere.css"]
REVALIDATED = re.compile("/api/v1/history/[^/]+/[^/]+/versions/[^/]+")
PROBES = ["/healthz", "/readyz", "/metrics"]


@pytest.fixture
def addresses(objects_by_model: dict[str, object]) -> list[str]:
    """Return an address for every route of the site."""
    actual = []
    for pattern, (address, _) in MATRIX.items():
        model = "/".join(pattern.split("/")[1:3])
        actual.append(f"/{address.format(pk=objects_by_model.get(model))}")
    return [*actual, *NOWHERE, *PROBES]


@pytest.fixture
def admin(client: Client, objects_by_model: dict[str, object]) -> Client:
    client.force_login(User.objects.get(username="admin"))
    client.raise_request_exception = False
    return client


def assert_no_answer_may_be_kept(
    client: Client, addresses: list[str], method: str = "get", **more: Any
) -> set[int]:
    """Check that every answer forbids caching, and return the statuses of the answers."""
    statuses = set()
    for address in addresses:
        answer = getattr(client, method)(address, **more)
        kept_by_client = REVALIDATED.fullmatch(address) and answer.status_code == 200
        expected = "private, no-cache" if kept_by_client else "no-store"
        assert answer.headers["Cache-Control"] == expected, (address, answer.status_code)
        statuses.add(answer.status_code)
    return statuses


@pytest.mark.parametrize("role", [None, "support", "admin"])
def test_answers_forbid_caching_for_every_role(
    role: str | None, admin: Client, addresses: list[str]
) -> None:
    admin.logout()
    if role is not None:
        admin.force_login(User.objects.get(username=role))
    expected = {200, 404, *((401,) if role is None else (302, 403) if role != "admin" else (403,))}
    assert assert_no_answer_may_be_kept(admin, addresses) >= expected


@pytest.mark.parametrize(
    "failing_function",
    [
        "django.middleware.security.SecurityMiddleware.process_request",
        "annals.web.middleware.journal.classify_request",
        "django.middleware.clickjacking.XFrameOptionsMiddleware.process_response",
    ],
)
def test_error_answers_forbid_caching(
    failing_function: str, admin: Client, addresses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(failing_function, fail)
    requested = [
        address for address in addresses if address not in PROBES and "/static/" not in address
    ]
    assert assert_no_answer_may_be_kept(admin, requested) == {500}


def test_static_files_allow_caching(client: Client, db: None) -> None:
    answer = client.get("/static/history/annals.css")
    answer.getvalue()  # reading the answer closes the file
    assert (answer.status_code, "max-age" in answer.headers["Cache-Control"]) == (200, True)


def test_all_unknown_http_methods_share_one_metric_label_value(client: Client, db: None) -> None:
    for number in range(20):
        client.generic(f"ODD{number}", "/api/v1/search")
    methods = {
        sample.labels["method"]
        for family in REGISTRY.collect()
        if family.name.startswith("annals_http_request")
        for sample in family.samples
    }
    assert "other" in methods
    assert not {method for method in methods if method.startswith("ODD")}


def test_error_page_is_in_both_languages_when_language_of_viewer_is_unknown(db: None) -> None:
    client = Client(enforce_csrf_checks=True)
    for answer, status, title in (
        (client.get("/admin/", headers={"Host": "evil.example"}), 400, "Запрос не понят"),
        (client.post("/admin/login/", {"username": "x"}), 403, "Форма устарела"),
    ):
        page = answer.content.decode()
        assert (answer.status_code, f"<h1>{title}</h1>" in page) == (status, True)
        assert '<h1 lang="en">' in page
        assert "CSRF" not in page
    page = client.get("/nowhere").content.decode()
    assert "No such page" in page
    client.cookies["django_language"] = "en"
    assert "No such page" in client.get("/nowhere").content.decode()
