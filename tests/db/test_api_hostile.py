"""Hostile requests to addresses below /api/ get a status below 500.

Every error is JSON with a code and a request id. The tests call the WSGI handler directly, because
Django's test client changes such requests.
"""

import json
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pytest

from tests.db.calls import keep_connection, make_handler
from tests.db.store import Store

BASE = "/api/v1/history/product-instance/A1"
Answer = tuple[int, dict[str, str], bytes]


@pytest.fixture
def application(store: Store) -> Iterator[Any]:
    store.add("A1", 0, {"rate": "1"}, 0)
    with keep_connection():
        yield make_handler()


def send_raw_request(
    application: Any, path: str, method: str = "GET", query: str = "", **more: str
) -> Answer:
    """Send a request to the WSGI handler.

    Args:
        path: The decoded path. As in WSGI, each character is a byte.
        query: The query string, not decoded.
        more: Further variables of the WSGI environment.
    """
    environ: dict[str, Any] = {
        "REQUEST_METHOD": method,
        "SCRIPT_NAME": "",
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "HTTP_HOST": "localhost",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": BytesIO(b"x=1"),
        "wsgi.errors": BytesIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
        **more,
    }
    status_and_headers: list[Any] = []
    body = application(
        environ, lambda status, headers: status_and_headers.extend((status, headers))
    )
    return int(status_and_headers[0].split()[0]), dict(status_and_headers[1]), b"".join(body)


def check_documented_answer(answer: Answer, request: object) -> None:
    """Check that the status is below 500, and that an error has the documented form."""
    status, headers, body = answer
    assert status < 500, request
    assert headers["Cache-Control"] == "no-store"
    if status >= 400:
        assert headers["Content-Type"] == "application/json", request
        error = json.loads(body)["error"] if body else {}
        assert body == b"" or error["requestId"] == headers["X-Request-ID"], request
        assert body == b"" or (error["code"] and error["message"]), request


METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "ODD"]
PATHS = [
    "/api",
    "/api/",
    "/api//",
    "/api/v1",
    "/api/v1/",
    "/api/schema",
    "/api/docs",
    "/api/docs/x",
    "/api/schema/",
    "/api/docs/",
    "/api/v2/search",
    "/api/../admin/",
    BASE,
    f"{BASE}/",
    f"{BASE}\0",
    f"{BASE}\xff/at",
    f"{BASE}\r\nX: y",
    "/api/\xd1\x8b",
    "/api/v1/search",
    "/api/v1/completeness",
    "/api/v1/applications//history",
    "/api/v1/history//A1",
    "/api/v1/history/product-instance/",
    f"{BASE}/versions/\xb2",
    f"/api/v1/history/product-instance/{'a' * 8000}",
]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: ascii(path)[:60])
def test_every_address_answers_every_method(application: Any, path: str) -> None:
    for method in METHODS:
        check_documented_answer(
            send_raw_request(application, path, method, CONTENT_LENGTH="3"), (method, path)
        )


HEADERS = {
    "HTTP_AUTHORIZATION": [
        "Basic",
        "Basic x",
        "Basic \xff",
        "Basic Og==",
        "Basic gGE6YQ==",
        "Bearer",
        "Bearer  ",
        "Bearer \xe9",
        "Bearer a.b.c",
        f"Bearer {'a' * 70_000}",
        "Digest",
        "\x00",
    ],
    "HTTP_COOKIE": [
        "sessionid=" + "a" * 32,
        'sessionid="aaaaaaaa\\000"',
        "sessionid=\xff" * 9,
        "sessionid=" + "a" * 8000,
        "django_language=../x",
        'django_language="\\000"',
        ";=;\x00",
        'csrftoken="\\000"',
    ],
    "HTTP_HOST": ["", "evil.example", "localhost:x", "[::1", "a b", "\xff", "localhost\x00"],
    "HTTP_ACCEPT": ["nonsense", "text/html;q=x", "\xff", "application/json;version=9"],
    "HTTP_ACCEPT_LANGUAGE": ["\xff", "x" * 5000, "ru;q=9", "../en", "en\x00", "*", "en_US,ru"],
    "HTTP_ACCEPT_ENCODING": ["gzip;q=x", "\xff", "gzip"],
    "HTTP_IF_NONE_MATCH": ["x", '"', 'W/"', "\xff", "*"],
    "HTTP_IF_MODIFIED_SINCE": ["x", "Thu, 01 Jan 99999 00:00:00 GMT"],
    "HTTP_X_FORWARDED_FOR": ["x", "\xff", "1.2.3.4, evil", "," * 500],
    "HTTP_X_FORWARDED_PROTO": ["https", "\xff"],
    "HTTP_X_REQUEST_ID": ["\xff", "a\nb", "x" * 5000],
    "HTTP_X_ANNALS_REASON": ["%FF", "\xff", "%00", "x" * 5000],
    "HTTP_RANGE": ["bytes=0-0", "x"],
    "CONTENT_LENGTH": ["x", "-1", "99999999999999999999"],
    "CONTENT_TYPE": ["multipart/form-data", "multipart/form-data; boundary=\xff", "\xff"],
    "REMOTE_ADDR": ["", "x", "::1%eth0", "\xff"],
}


@pytest.mark.parametrize("name", HEADERS)
def test_request_with_malformed_header_gets_documented_answer(application: Any, name: str) -> None:
    for value in HEADERS[name]:
        for path in (f"{BASE}/versions/0", "/api/schema/", "/api/docs/", "/api/nothing"):
            for method in ("GET", "POST"):
                check_documented_answer(
                    send_raw_request(application, path, method, **{name: value}),
                    (path, method, value),
                )
        for path in ("/admin/", "/admin/login/", "/admin/history/"):
            assert send_raw_request(application, path, **{name: value})[0] < 500, (path, value)
