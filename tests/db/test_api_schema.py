"""The OpenAPI document describes what the API does."""

import json
from typing import Any

import jsonschema_rs
import pytest
from django.test import Client
from django.urls import URLPattern
from drf_spectacular.generators import SchemaGenerator

from history.api.answer_types import VersionAtAnswer, VersionMembers
from history.api.errors import ERROR_KINDS
from history.api.urls import urlpatterns
from tests.db.store import Store, minute

V1 = "/api/v1"
# Calls that never ask the old service.
STORE_ONLY = ("search", "changes", "completeness", "history/{entity}/{id}/versions")


@pytest.fixture
def openapi_document(client: Client, db: None) -> Any:
    response = client.get("/api/schema/")
    assert response.status_code == 200
    return json.loads(response.content)


def test_openapi_3_1_document_describes_every_call(openapi_document: Any) -> None:
    assert openapi_document["openapi"].startswith("3.1")
    described = {path.removeprefix("/api/v1/") for path in openapi_document["paths"]}
    served = {
        str(pattern.pattern).replace("<str:", "{").replace("<id:", "{").replace(">", "}")
        for pattern in urlpatterns
        if isinstance(pattern, URLPattern) and str(pattern.pattern)
    }
    assert described == served | {"completeness"}
    for path in openapi_document["paths"].values():
        assert set(path) == {"get"}
        assert path["get"]["summary"]
        assert "description" not in path["get"]  # it would be the docstring of the view


@pytest.mark.parametrize("status", [None, 200, 503])
def test_every_answer_fits_its_schema(
    openapi_document: Any,
    store: Store,
    support: Client,
    request: pytest.FixtureRequest,
    status: int | None,
) -> None:
    """`status` is the HTTP status with which the old service answers, or None without an old
    service."""
    if status is not None:
        old = request.getfixturevalue("old")
        old.add_version("A1", 5, {"rate": 0}, minute(5))
        old.status = status
    for number in range(3):
        data = {"rate": number, "list": [{"pid": number}], "createdAt": minute(0).isoformat()}
        store.add("A1", number, data, number)
        store.add("C1", number, data, number, entity="participant-role")
    document_path, parts = "history/{entity}/{id}", "applications/{productInstanceId}"
    addresses = {
        document_path: "history/product-instance/A1?pageSize=2",
        f"{document_path}/versions": "history/participant-role/C1/versions",
        f"{document_path}/versions/{{version}}": "history/product-instance/A1/versions/2",
        f"{document_path}/compare": "history/product-instance/A1/compare?from=0&to=2",
        f"{document_path}/at": f"history/product-instance/A1/at?time={minute(9):%Y-%m-%dT%H:%MZ}",
        f"{document_path}/fields": "history/product-instance/A1/fields?path=/rate",
        f"{document_path}/blame": "history/product-instance/A1/blame",
        f"{parts}/history": "applications/A1/history",
        f"{parts}/at": f"applications/A1/at?time={minute(9):%Y-%m-%dT%H:%MZ}",
        "search": "search?q=A1",
        "changes": "changes?author=m.ivanov&from=2020-01-01",
        "trace": "trace?entity=product-instance&id=A1&version=3",
        "completeness": "completeness",
    }
    assert {f"{V1}/{path}" for path in addresses} == openapi_document["paths"].keys()
    for path, address in addresses.items():
        answer = support.get(f"{V1}/{address}")
        assert answer.status_code == 200, path
        data = answer.json()["data"]
        assert status is None or path in STORE_ONLY or "fallback" in data, path
        described = openapi_document["paths"][f"{V1}/{path}"]["get"]["responses"]["200"]
        schema = described["content"]["application/json"]["schema"]
        whole = {**schema, "components": openapi_document["components"]}
        jsonschema_rs.validator_for(whole).validate(answer.json())
        [*_, component] = schema["properties"]["data"]["$ref"].split("/")
        properties = openapi_document["components"]["schemas"][component]["properties"]
        assert data.keys() <= properties.keys(), path


def test_openapi_document_has_every_error_code(openapi_document: Any) -> None:
    answers = openapi_document["paths"][f"{V1}/history/{{entity}}/{{id}}"]["get"]["responses"]
    documented_codes = {
        (status, code)
        for status, answer in answers.items()
        if status != "200"
        for code in answer["description"].split(", ")
    }
    assert documented_codes == {
        (str(status), code) for _, status, code in ERROR_KINDS if code != "unknown_address"
    }


def test_components_of_openapi_document_have_expected_names(openapi_document: Any) -> None:
    assert set(openapi_document["components"]["schemas"]) == {
        "Application",
        "Blame",
        "Change",
        "ChangedVersion",
        "Changes",
        "Comparison",
        "Completeness",
        "Error",
        "Fate",
        "FieldHistory",
        "Operation",
        "SearchResults",
        "Store",
        "Timeline",
        "Version",
        "VersionAt",
    }


def test_answer_for_a_moment_has_time_before_the_fields_of_the_version() -> None:
    """VersionAtAnswer repeats the fields of VersionMembers: inherited ones would precede `time`."""
    members = VersionAtAnswer.__struct_fields__
    assert members[0] == "time"
    assert (
        members[1 : 1 + len(VersionMembers.__struct_fields__)] == VersionMembers.__struct_fields__
    )


@pytest.mark.django_db
def test_docs_page_has_no_inline_script_and_no_outside_host(client: Client) -> None:
    page = client.get("/api/docs/")
    assert page.status_code == 200
    text = page.content.decode()
    assert "<style" not in text
    assert "<script>" not in text
    assert "//" not in text.replace("<!DOCTYPE html>", "")
    assert "script-src 'self'" in page.headers["Content-Security-Policy"]
    script = client.get("/api/docs/?script=")
    assert script.headers["Content-Type"].startswith("application/javascript")
    assert b"SwaggerUIBundle" in script.content


def test_openapi_document_is_generated_once_per_process(
    client: Client, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody may request the document without a login."""
    first = client.get("/api/schema/")
    monkeypatch.setattr(SchemaGenerator, "get_schema", None)
    again = client.get("/api/schema/", headers={"Cookie": "sessionid=another"})
    assert again.content == first.content
    assert first["Content-Type"] == "application/json"
