"""Helpers of the API tests: a client with the role auditor, and checks of answers."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.handlers.wsgi import WSGIHandler
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from django.test import Client

from annals.web.utf8_request import Utf8Request
from history.documents.exactjson import loads


@pytest.fixture
def auditor(client: Client, db: None) -> Client:
    client.force_login(User.objects.get(username="auditor"))
    return client


def read_data(response: Any) -> Any:
    """Return the data of a successful answer, with exact numbers."""
    assert response.status_code == 200, response.content
    body: Any = loads(response.content)
    assert body["status"] == "success"
    return body["data"]


def get_data(client: Client, address: str) -> Any:
    return read_data(client.get(address))


def check_error(response: Any, status: int, code: str) -> dict[str, Any]:
    assert (response.status_code, response.headers["Content-Type"]) == (status, "application/json")
    body = json.loads(response.content)
    details: dict[str, Any] = body["error"]
    assert (body["status"], details["code"]) == ("error", code)
    assert details["message"]
    assert details["requestId"] == response.headers["X-Request-ID"]
    return details


def make_handler() -> WSGIHandler:
    """Return a WSGI handler that decodes requests as annals.wsgi does."""
    wsgi_handler = WSGIHandler()
    wsgi_handler.request_class = Utf8Request
    return wsgi_handler


@contextmanager
def keep_connection() -> Iterator[None]:
    """Keep the database connection open after requests, and with it the test's transaction.

    Django's own test client does the same.
    """
    request_started.disconnect(close_old_connections)
    request_finished.disconnect(close_old_connections)
    try:
        yield
    finally:
        request_started.connect(close_old_connections)
        request_finished.connect(close_old_connections)
