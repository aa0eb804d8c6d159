"""Schemathesis against the whole API, in this process.

Valid and invalid requests get only answers that the OpenAPI document describes.
"""

import base64
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from django.core.wsgi import get_wsgi_application
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from tests.db.calls import keep_connection
from tests.db.store import Store

HEADERS = {
    "Authorization": "Basic " + base64.b64encode(b"auditor:auditor").decode(),
    "Accept-Encoding": "identity",  # Schemathesis does not decompress answers here
}
ANSWERS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
# Without positive_data_acceptance: no schema can say that Annals signed the page token, that `from`
# is not later than `to`, and that the time zone exists.
REFUSALS = [negative_data_rejection, unsupported_method]


@pytest.fixture
def api(store: Store) -> Iterator[Any]:
    for version in range(5):
        store.add(
            "A1", version, {"rate": str(version), "items": [{"pid": "x", "n": version}]}, version
        )
        store.add("A1", version, {"n": version}, version, entity="participant-role")
    with keep_connection():
        yield schemathesis.openapi.from_wsgi("/api/schema/", get_wsgi_application())


relaxed = settings(
    max_examples=25, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
CALLS = [
    "timeline",
    "versions",
    "version",
    "compare",
    "at",
    "field",
    "blame",
    "applicationHistory",
    "applicationAt",
    "search",
    "trace",
    "completeness",
    "changes",
]


def test_fuzzer_knows_every_call(api: Any) -> None:
    operation_ids = [
        result.ok().definition.raw["operationId"] for result in api.get_all_operations()
    ]
    assert sorted(operation_ids) == sorted(CALLS)


@pytest.mark.parametrize("call", CALLS)
def test_wrong_request_is_refused_with_documented_error(api: Any, call: str) -> None:
    wrong = GenerationMode.NEGATIVE

    @relaxed
    @given(case=api.find_operation_by_id(call).as_strategy(generation_mode=wrong))
    def check_answer(case: Any) -> None:
        case.call_and_validate(headers=HEADERS, checks=[*ANSWERS, *REFUSALS])

    check_answer()


@pytest.mark.parametrize("call", CALLS)
def test_valid_request_is_answered_as_documented(api: Any, call: str) -> None:
    """Three of four requests are about a stored document."""
    path_values = {
        "entity": "product-instance",
        "id": "A1",
        "productInstanceId": "A1",
        "version": 3,
    }
    some = st.integers(0, 3)

    @relaxed
    @given(case=api.find_operation_by_id(call).as_strategy(), choice=some)
    def check_answer(case: Any, choice: int) -> None:
        if choice:
            for name in case.path_parameters or {}:
                case.path_parameters[name] = path_values[name]
        case.call_and_validate(headers=HEADERS, checks=ANSWERS)

    check_answer()
