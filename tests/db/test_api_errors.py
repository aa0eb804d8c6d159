"""Every answer below /api/ is JSON with exact numbers, and every error has a request id."""

import json
import re

import pytest
from django.test import Client

from tests.db.calls import check_error, keep_connection, make_handler
from tests.db.store import Store

BASE = "/api/v1/history/product-instance/A1"
COMMON = "django.middleware.common.CommonMiddleware.process_response"
SAME = [
    "0",
    "7",
    "-7",
    "1.10",
    "-1.10",
    "0.000",
    "0.0000001",
    "0.000001",
    "0.000000",
    "-0.000001",
    "100",
    "0.000000001",
    "12345678901234567890.10",
    "1" * 5_000,
    "0." + "0" * 400 + "1",
]
# Numbers in the notation of PostgreSQL: without an exponent, and without the sign of a zero.
OTHERWISE = {
    "1e2": "100",
    "1.50e1": "15.0",
    "1.5E+3": "1500",
    "1e-7": "0.0000001",
    "12.30E-1": "1.230",
    "1e30": "1" + "0" * 30,
    "-0": "0",
    "-0.0": "0.0",
    "0e5": "0",
}


@pytest.fixture
def auditor(auditor: Client) -> Client:
    auditor.raise_request_exception = False
    return auditor


@pytest.mark.parametrize("number, expected", [*zip(SAME, SAME, strict=True), *OTHERWISE.items()])
def test_every_api_call_returns_all_digits_of_numbers_in_snapshots(
    auditor: Client, store: Store, number: str, expected: str
) -> None:
    for version, rate in enumerate(["3", number]):
        data = f'{{"rate": {rate}, "list": [{rate}], "createdAt": {rate}}}'
        store.add("A1", version, data, version)
        store.add("R1", version, data, version, entity="participant-role")
    for call in (
        f"{BASE}",
        f"{BASE}/versions/1",
        f"{BASE}/compare?from=0&to=1",
        f"{BASE}/blame",
        f"{BASE}/fields?path=/rate",
        f"{BASE}/at?time=2999-01-01",
        "/api/v1/applications/A1/history",
        "/api/v1/applications/A1/at?time=2999-01-01",
    ):
        response = auditor.get(call)
        assert response.status_code == 200, (call, response.content)
        matches = re.findall(rb'"(?:rate|value)": ?([-+.0-9eE]+)', response.content)
        assert expected.encode() in matches, call


@pytest.mark.parametrize(
    "failing_function",
    ["history.timeline.fetch_page", "history.api.base_view.encode_answer", COMMON],
)
def test_unexpected_error_is_answered_with_request_id(
    auditor: Client, store: Store, monkeypatch: pytest.MonkeyPatch, failing_function: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("secret")

    store.add("A1", 0, {}, 0)
    monkeypatch.setattr(failing_function, fail)
    error_body = check_error(auditor.get(BASE), 500, "internal_error")
    assert "secret" not in json.dumps(error_body)


@pytest.mark.parametrize("address", ["docs/", "schema/"])
@pytest.mark.parametrize("accept", ["application/pdf", "text/html", "*/*", "nonsense"])
def test_openapi_document_is_sent_whatever_the_accept_header_says(
    auditor: Client, address: str, accept: str
) -> None:
    response = auditor.get(f"/api/{address}", headers={"Accept": accept})
    assert response.status_code == 200


@pytest.mark.parametrize(
    "address", [BASE, "/api/v1/search?q=1", "/api/v1/completeness", "/api/v1/no", "/api/schema/"]
)
def test_only_methods_of_the_allow_header_are_answered(
    auditor: Client, store: Store, address: str
) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE", "TRACE"):
        answer = auditor.generic(method, address)
        assert answer.status_code == 405
        allowed = answer.headers["Allow"].split(", ")
        assert method not in allowed
    assert allowed == ["GET", "HEAD", "OPTIONS"]
    auditor.handler.enforce_csrf_checks = (
        True  # as on a server, where the CSRF token may be in the body
    )
    auditor.cookies["csrftoken"] = "a" * 32
    if "schema" not in address:
        assert auditor.post(address, "x", "text/plain").status_code == 405
    if "/no" not in address:
        store.add("A1", 0, {}, 0)
        for method in allowed:
            status = 204 if method == "OPTIONS" else 200
            assert auditor.generic(method, address).status_code == status


@pytest.mark.parametrize(
    "path, status",
    [
        ("history/product-instance/\xff", "400"),
        ("history/product-instance/a\xc3b/at", "400"),
        ("applications/\xff/history", "400"),
        ("history/product-instance/%FF", "200"),
        ("history/product-instance/\xd1\x8b", "200"),
    ],
)
def test_id_of_bytes_that_are_not_utf8_is_refused(
    auditor: Client, store: Store, path: str, status: str
) -> None:
    """The test calls the WSGI handler: Django's test client would turn the byte %FF into text."""
    store.add("%FF", 0, {}, 0)
    store.add("ы", 0, {}, 0)
    environ = auditor._base_environ(PATH_INFO=f"/api/v1/{path}", QUERY_STRING="")
    status_lines: list[str] = []
    with keep_connection():
        body = make_handler()(environ, lambda line, _: status_lines.append(line))
        text = b"".join(body)
    assert status_lines[0].split()[0] == status, text
    assert (status == "200") == (b"UTF-8" not in text)


@pytest.mark.parametrize(
    "time, zone",
    [
        ("9999-12-31T23:59:59", "America/New_York"),
        ("0001-01-01T00:00", "Europe/Moscow"),
        ("9999-12-31T23:59:59-05:00", "UTC"),
    ],
)
def test_error_says_that_moment_is_out_of_range(auditor: Client, time: str, zone: str) -> None:
    error_body = check_error(
        auditor.get(f"{BASE}/at", {"time": time, "tz": zone}), 400, "bad_parameter"
    )
    assert error_body["parameter"] == "time"
    assert "outside the years 1 to 9999" in error_body["message"]
