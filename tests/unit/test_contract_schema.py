"""The JSON Schema and the decoder accept the same messages, except for what BEYOND names."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import product
from typing import Any

import jsonschema
import jsonschema_rs
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from history.entities import BY_NAME, ENTITIES
from ingest.contract import schema
from ingest.source.decode import Decode, Expired, Reason, Rejected, decode
from ingest.source.envelope import Shape
from tests.messages import STRANGE, TOPIC, WINDOW, fields, message, nested, value, with_data

CHILD = BY_NAME["product-task"]
WHOLE = jsonschema_rs.validator_for(schema.of_all())
OF_KIND = {each.name: jsonschema_rs.validator_for(schema.of_entity(each)) for each in ENTITIES}
REGISTRY = jsonschema_rs.Registry([(schema.NAME, schema.of_all())])
IN_WHOLE = {
    each.name: jsonschema_rs.validator_for(
        {"$schema": schema.DIALECT, "$ref": f"{schema.NAME}#/$defs/{each.name}"}, registry=REGISTRY
    )
    for each in ENTITIES
}


def decodes(body: bytes, topic: str = TOPIC, decode: Decode = decode) -> bool:
    """Whether the decoder takes a message, as far as the clock is not concerned."""
    try:
        decode(message(body, topic=topic), WINDOW)
    except Expired:
        return True
    except Rejected as error:
        return error.reason is Reason.FUTURE
    return True


def test_the_schemas_are_schemas() -> None:
    for each in (schema.of_all(), *map(schema.of_entity, ENTITIES)):
        jsonschema.Draft202012Validator.check_schema(each)


# Every field at its limits and just beyond them.
LENGTHS = ["", *(letter * size for letter in "x😀" for size in (1, 31, 32, 33, 63, 64, 65)), "\0"]
KINDS: list[Any] = [..., None, True, False, 0, 1, 1.5, "1", [], {}, ["x"], {"a": 1}]
TYPE_EDGES: list[Any] = [
    *(..., None, "CREATE", "UPDATE", "DELETE", 0, 1, 2, 3, -1, "0", "1", "2", "3", "", "delete"),
    *(True, 1.5, [], {}, 10**30),
]
TIME_EDGES = [
    f"{date}T{time}{zone}"
    for date, time, zone in [
        *((f"2024-{month:02}-{day}", "00:00", "") for month in range(14) for day in range(27, 34)),
        *((f"2025-{day}", "00:00", "") for day in ("07-00", "7-03", "07-3", "007-03", "W27-4")),
        *((f"{year}-07-03", "00:00", "") for year in ("0000", "0001", "9999", "999", "10000")),
        *(("2025-07-03", time, "") for time in (
            "23:59", "24:00", "00:60", "1:00", "23:59:59", "23:59:60", "00:00:00.", "00:00:00,",
            "00:00:00.123456789", "00:00:00.1234567890", "00:00:00,1", "00:00:00;1", "000000", "00",
            "", " 00:00", "00:00 ", "00:00:0", "00:00:00.1:", "00:00:00.1234567Z",
        )),
        *(("2025-07-03", time, zone) for time in ("00:00", "00:00:00", "00:00:00.123456") for zone
          in ("Z", "z", "+00", "-00:00", "+23:59", "+24:00", "+23:60", "+2359", "+0", "+000",
              "+00:00:00", "ZZ", " Z", "[UTC]", "Z[UTC]", "+1.5", "\u2212" + "03:00", "\n")),
    ]
]  # fmt: skip
EDGES: dict[str, list[Any]] = {
    "id": [*LENGTHS, *KINDS],
    "version": [-1, 2**31 - 1, 2**31, 10**30, *KINDS],
    "type": TYPE_EDGES,
    "updatedAt": [*TIME_EDGES, *(time.replace("T", "t") for time in TIME_EDGES[:9]), *KINDS],
    "clientId": [*LENGTHS, *KINDS],
    "author": [*LENGTHS, *KINDS],
    "productInstanceId": [*LENGTHS, *KINDS],
    "data": KINDS,
    "extra": KINDS,
}


@pytest.mark.parametrize("name", EDGES)
def test_they_agree_at_the_limits_of_each_field(name: str) -> None:
    for entity in (ENTITIES[0], CHILD):
        for edge in EDGES[name]:
            body = fields(**{"productInstanceId": "A1", name: edge})
            check(body, entity)


def test_another_field_may_name_the_parent() -> None:
    """A declared kind says which: then productInstanceId is a field as any other."""
    entity = replace(CHILD, parent="orderId")
    validators = [
        jsonschema_rs.validator_for(schema.of_entity(entity)),
        jsonschema_rs.validator_for(schema.kind(entity, "#")),
    ]
    own = Decode({CHILD.topics[0]: Shape({schema.APPLICATION: "orderId"})})
    for name in (*EDGES, "orderId"):
        for edge in EDGES.get(name, EDGES["id"]):
            body = fields(**{"orderId": "A1", name: edge})
            accepted = decodes(json.dumps(body).encode(), CHILD.topics[0], own)
            assert [each.is_valid(body) for each in validators] == [accepted, accepted], body


def test_they_agree_about_each_pair_of_types_with_and_without_data() -> None:
    for kind, rev_type in product(TYPE_EDGES, TYPE_EDGES):
        for data in (..., None, {}):
            check(fields(type=kind, revType=rev_type, data=data), ENTITIES[0])


def check(body: dict[str, Any], entity: Any) -> bool:
    """Whether all accept a message. Those of BEYOND have no number of that notation."""
    accepted = decodes(json.dumps(body).encode(), entity.topics[0])
    assert OF_KIND[entity.name].is_valid(body) is accepted, body
    assert IN_WHOLE[entity.name].is_valid(body) is accepted, body
    return accepted


TEXTS = st.text(max_size=4) | st.sampled_from(LENGTHS)
GOOD_TEXTS = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=32
)
TIMES = st.from_regex(re.compile(schema.TIME_PATTERN.replace("$", r"\Z"), re.ASCII))
NEARLY_TIMES = st.builds(
    lambda time, at, new: time[: at % 36] + new + time[at % 36 + 1 :],
    TIMES, st.integers(0, 35), st.text(st.sampled_from("0123456789-+:.,TZ "), max_size=2),
)  # fmt: skip
TYPES = st.sampled_from(["CREATE", "UPDATE", "DELETE", 0, 1, 2, "0", "1", "2"])
WRONG_TYPES = st.sampled_from(["create", "", "3", 3, -1, True, False, 1.5, [], {}, None, "2 "])
VERSIONS = st.integers(0, 2**31 - 1)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2**32) | st.floats(allow_nan=False,
    allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner,
    max_size=2), max_leaves=4,
)  # fmt: skip
OBJECTS = st.dictionaries(st.text(max_size=3), ANYTHING, max_size=3)

GOOD: dict[str, st.SearchStrategy[Any]] = {
    "id": GOOD_TEXTS,
    "version": VERSIONS,
    "type": TYPES,
    "updatedAt": TIMES,
    "clientId": GOOD_TEXTS,
    "author": st.none() | GOOD_TEXTS,
    "productInstanceId": GOOD_TEXTS,
    "data": OBJECTS,
}
ANY: dict[str, st.SearchStrategy[Any]] = {
    "id": TEXTS | ANYTHING,
    "version": VERSIONS | ANYTHING,
    "type": TYPES | WRONG_TYPES,
    "revType": TYPES | WRONG_TYPES,
    "updatedAt": TIMES | NEARLY_TIMES | ANYTHING,
    "clientId": TEXTS | ANYTHING,
    "author": TEXTS | ANYTHING,
    "productInstanceId": TEXTS | ANYTHING,
    "data": st.none() | OBJECTS | ANYTHING,
    "extra": ANYTHING,
}


def beyond(body: dict[str, Any]) -> bool:
    """Whether a message is one of those in BEYOND that the strategies make."""
    whole = any(isinstance(body.get(name), float) for name in ("version", "type", "revType"))
    return whole or "-02-29T" in str(body.get("updatedAt"))


@given(st.fixed_dictionaries(GOOD), st.sampled_from(ENTITIES))
def test_what_the_schema_says_is_accepted(body: dict[str, Any], entity: Any) -> None:
    if not beyond(body):
        assert OF_KIND[entity.name].is_valid(body)
        assert decodes(json.dumps(body).encode(), entity.topics[0])


@settings(max_examples=150)
@given(
    st.fixed_dictionaries(GOOD),
    st.lists(st.sampled_from(sorted(ANY)), max_size=3).flatmap(
        lambda names: st.fixed_dictionaries({name: st.just(...) | ANY[name] for name in names})
    ),
    st.sampled_from(ENTITIES),
)
def test_schema_and_decoder_agree(
    good: dict[str, Any], changes: dict[str, Any], entity: Any
) -> None:
    body = {name: each for name, each in {**good, **changes}.items() if each is not ...}
    if beyond(body):
        return
    event(f"accepted: {check(body, entity)}")


@given(st.text(max_size=3) | NEARLY_TIMES | TIMES)
def test_times_agree(text: str) -> None:
    if "-02-29T" not in text:
        assert WHOLE.is_valid(fields(updatedAt=text)) is decodes(value(updatedAt=text))


@given(ANYTHING)
def test_what_is_no_object_is_refused_by_both(body: Any) -> None:
    assert WHOLE.is_valid(body) is decodes(json.dumps(body).encode()) is False


# A message for each name in BEYOND: parsed as Python does, and what the decoder says of it.
DIFFERENT: dict[str, list[tuple[bytes, bool]]] = {
    "bytes": [(with_data(b'{"a":NaN}'), False)],
    "surrogates": [(value(id="x").replace(b'"x"', rb'"\ud800"'), False)],
    "repeated names": [(value().replace(b'{"id"', b'{"id":5,"id"'), False)],
    "number notation": [
        (value(version=7.0), False),
        (value().replace(b'"version": 7', b'"version": 7e0'), False),
        (value(type=1.0), False),
    ],
    "leap days": [(value(updatedAt="2025-02-29T00:00:00"), False)],
    "the clock": [(value(updatedAt="9999-12-31T23:59:59"), False)],
    "nesting": [(with_data(nested(501)), False)],
    "exponents": [(with_data(b'{"a":[' + b"1e131071," * 9_000 + b"0]}"), False)],
    "unread bytes": [(value()[:-1] + b',"x":"\xff"}', True)],
}


def test_the_list_of_differences_is_whole() -> None:
    assert DIFFERENT.keys() == schema.BEYOND.keys()


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_a_schema_cannot_say(name: str) -> None:
    python = jsonschema.Draft202012Validator(schema.of_all())
    for body, accepted in DIFFERENT[name]:
        try:
            decode(message(body), WINDOW)
            decoded = True
        except Rejected:
            decoded = False
        assert decoded is accepted
        try:
            valid = python.is_valid(json.loads(body))
        except UnicodeDecodeError:
            valid = False
        assert valid is not accepted


@pytest.mark.parametrize("name", STRANGE)
def test_what_looks_bad_and_is_good(name: str) -> None:
    assert WHOLE.is_valid(json.loads(STRANGE[name]))
    assert jsonschema.Draft202012Validator(schema.of_all()).is_valid(json.loads(STRANGE[name]))


def test_a_child_needs_its_application() -> None:
    assert not OF_KIND[CHILD.name].is_valid(fields())
    assert OF_KIND[CHILD.name].is_valid(fields(productInstanceId="A1"))
