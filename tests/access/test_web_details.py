"""Small things of the web that give much away when they are wrong."""

from __future__ import annotations

import logging

import pytest
from django.test import Client
from prometheus_client import REGISTRY

from annals.observe.logs import ConsoleFormatter


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


def test_a_screen_refuses_in_both_languages(db: None) -> None:
    """Before it is known which language somebody reads."""
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
    assert "Такой страницы нет" in page
    client.cookies["django_language"] = "en"
    assert "No such page" in client.get("/nowhere").content.decode()


@pytest.mark.parametrize("text", ["a\nb", "a\r\nb", "a\x1b[2Jb", "a\u2028b", "a\x00b", "a\u202eb"])
def test_a_log_line_cannot_be_forged(text: str) -> None:
    record = logging.makeLogRecord(
        {"msg": "%s", "args": (text,), "name": "test", "levelname": "INFO", "user": text}
    )
    line = ConsoleFormatter().format(record)
    assert line.isprintable()
    assert len(line.splitlines()) == 1
