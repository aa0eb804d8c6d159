"""Small things of the web that give much away when they are wrong."""

from __future__ import annotations

import logging

import pytest
from django.contrib.auth.models import User
from django.test import Client
from prometheus_client import REGISTRY

from annals.observe.logs import ConsoleFormatter
from tests.db.store import Store


@pytest.mark.parametrize(
    "address",
    [
        "/admin/",
        "/admin/history/product-instance/A1/",
        "/admin/nowhere/",
        "/api/v1/history/product-instance/A1",
        "/api/v1/history/product-instance/unknown",
        "/api/v1/history/unknown/A1",
        "/api/v1/search?q=",
        "/api/nowhere",
    ],
)
@pytest.mark.parametrize("login", ["support", None])
def test_no_answer_may_be_kept(
    address: str, login: str | None, client: Client, store: Store
) -> None:
    store.add("A1", 0, {"rate": "1"}, 0)
    if login is not None:
        client.force_login(User.objects.get(username=login))
    assert client.get(address).headers["Cache-Control"] == "no-store"


def test_odd_methods_make_no_new_metrics(client: Client, db: None) -> None:
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


@pytest.mark.parametrize("text", ["a\nb", "a\r\nb", "a\x1b[2Jb", "a\u2028b", "a\x00b", "a\u202eb"])
def test_a_log_line_cannot_be_forged(text: str) -> None:
    record = logging.makeLogRecord(
        {"msg": "%s", "args": (text,), "name": "test", "levelname": "INFO", "user": text}
    )
    line = ConsoleFormatter().format(record)
    assert line.isprintable()
    assert len(line.splitlines()) == 1
