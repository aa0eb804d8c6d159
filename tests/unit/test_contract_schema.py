"""The JSON Schema and the decoder accept the same messages, except for rules of BEYOND_SCHEMA."""

import json
import re
from typing import Any

import jsonschema
import jsonschema_rs
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from history.kinds.entities import BY_NAME, ENTITIES
from ingest.messages.decode import (
    Decoder,
    ExpiredVersionError,
    Reason,
    RejectedMessageError,
    decode,
)
from scripts import message_schema as contract
from tests.messages import (
    TOPIC,
    WINDOW,
    make_fields,
    make_message,
    make_nested,
    make_value,
    make_value_with_data,
)

CHILD = BY_NAME["product-task"]
OF_KIND = {
    kind.name: jsonschema_rs.validator_for(contract.make_entity_schema(kind)) for kind in ENTITIES
}
REGISTRY = jsonschema_rs.Registry([(contract.NAME, contract.make_whole_schema())])
IN_WHOLE = {
    kind.name: jsonschema_rs.validator_for(
        {"$schema": contract.DIALECT, "$ref": f"{contract.NAME}#/$defs/{kind.name}"},
        registry=REGISTRY,
    )
    for kind in ENTITIES
}


def is_decoded(body: bytes, topic: str = TOPIC, decode: Decoder = decode) -> bool:
    """Return whether the decoder accepts a message, or refuses only the day of its `updatedAt`."""
    try:
        decode(make_message(body, topic=topic), WINDOW)
    except ExpiredVersionError:
        return True
    except RejectedMessageError as error:
        return error.reason is Reason.FUTURE
    return True


# Every field at its limits and just beyond them.
LENGTHS = ["", *(letter * size for letter in "x😀" for size in (1, 31, 32, 33, 63, 64, 65)), "\0"]
KINDS: list[Any] = [..., None, True, False, 0, 1, 1.5, "1", [], {}, ["x"], {"a": 1}]
TYPE_EDGES: list[Any] = [
    ...,
    None,
    "CREATE",
    "UPDATE",
    "DELETE",
    0,
    1,
    2,
    3,
    -1,
    "0",
    "1",
    "2",
    "3",
    "",
    "delete",
    True,
    1.5,
    [],
    {},
    10**30,
]
TIME_EDGES = [
    f"{date}T{time}{zone}"
    for date, time, zone in [
        *((f"2024-{month:02}-{day}", "00:00", "") for month in range(14) for day in range(27, 34)),
        *((f"2025-{day}", "00:00", "") for day in ("07-00", "7-03", "07-3", "007-03", "W27-4")),
        *((f"{year}-07-03", "00:00", "") for year in ("0000", "0001", "9999", "999", "10000")),
        *(
            ("2025-07-03", time, "")
            for time in (
                "23:59",
                "24:00",
                "00:60",
                "1:00",
                "23:59:59",
                "23:59:60",
                "00:00:00.",
                "00:00:00,",
                "00:00:00.123456789",
                "00:00:00.1234567890",
                "00:00:00,1",
                "00:00:00;1",
                "000000",
                "00",
                "",
                " 00:00",
                "00:00 ",
                "00:00:0",
                "00:00:00.1:",
                "00:00:00.1234567Z",
            )
        ),
        *(
            ("2025-07-03", time, zone)
            for time in ("00:00", "00:00:00", "00:00:00.123456")
            for zone in (
                "Z",
                "z",
                "+00",
                "-00:00",
                "+23:59",
                "+24:00",
                "+23:60",
                "+2359",
                "+0",
                "+000",
                "+00:00:00",
                "ZZ",
                " Z",
                "[UTC]",
                "Z[UTC]",
                "+1.5",
                "\u2212" + "03:00",
                "\n",
            )
        ),
    ]
]
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
def test_json_schema_and_decoder_agree_on_values_at_the_limits_of_each_field(name: str) -> None:
    for entity in (ENTITIES[0], CHILD):
        for edge in EDGES[name]:
            body = make_fields(**{"productInstanceId": "A1", name: edge})
            is_accepted_by_all(body, entity)


def is_accepted_by_all(body: dict[str, Any], entity: Any) -> bool:
    """Return whether decoder and schemas accept a message, after checking that they agree."""
    accepted = is_decoded(json.dumps(body).encode(), entity.topics[0])
    assert OF_KIND[entity.name].is_valid(body) is accepted, body
    assert IN_WHOLE[entity.name].is_valid(body) is accepted, body
    return accepted


TEXTS = st.text(max_size=4) | st.sampled_from(LENGTHS)
GOOD_TEXTS = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=32
)
TIMES = st.from_regex(re.compile(contract.TIME_PATTERN.replace("$", r"\Z"), re.ASCII))
NEARLY_TIMES = st.builds(
    lambda time, position, new: time[: position % 36] + new + time[position % 36 + 1 :],
    TIMES,
    st.integers(0, 35),
    st.text(st.sampled_from("0123456789-+:.,TZ "), max_size=2),
)
TYPES = st.sampled_from(["CREATE", "UPDATE", "DELETE", 0, 1, 2, "0", "1", "2"])
WRONG_TYPES = st.sampled_from(["create", "", "3", 3, -1, True, False, 1.5, [], {}, None, "2 "])
VERSIONS = st.integers(0, 2**31 - 1)
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1, 2**32)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
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


def has_float_or_leap_day(body: dict[str, Any]) -> bool:
    """Return whether decoder and schema can disagree, because of a float or a leap day."""
    whole = any(isinstance(body.get(name), float) for name in ("version", "type", "revType"))
    return whole or "-02-29T" in str(body.get("updatedAt"))


@settings(max_examples=150)
@given(
    st.fixed_dictionaries(GOOD),
    st.lists(st.sampled_from(sorted(ANY)), max_size=3).flatmap(
        lambda names: st.fixed_dictionaries({name: st.just(...) | ANY[name] for name in names})
    ),
    st.sampled_from(ENTITIES),
)
def test_json_schema_and_decoder_accept_the_same_random_messages(
    good: dict[str, Any], changes: dict[str, Any], entity: Any
) -> None:
    body = {name: change for name, change in {**good, **changes}.items() if change is not ...}
    if has_float_or_leap_day(body):
        return
    event(f"accepted: {is_accepted_by_all(body, entity)}")


# For each rule of BEYOND_SCHEMA, messages on which decoder and schema disagree, each with whether
# the decoder accepts it.
DIFFERENT: dict[str, list[tuple[bytes, bool]]] = {
    "bytes": [(make_value_with_data(b'{"a":NaN}'), False)],
    "surrogates": [(make_value(id="x").replace(b'"x"', rb'"\ud800"'), False)],
    "repeated names": [(make_value().replace(b'{"id"', b'{"id":5,"id"'), False)],
    "number notation": [
        (make_value(version=7.0), False),
        (make_value().replace(b'"version": 7', b'"version": 7e0'), False),
        (make_value(type=1.0), False),
    ],
    "leap days": [(make_value(updatedAt="2025-02-29T00:00:00"), False)],
    "the clock": [(make_value(updatedAt="9999-12-31T23:59:59"), False)],
    "nesting": [(make_value_with_data(make_nested(501)), False)],
    "exponents": [(make_value_with_data(b'{"a":[' + b"1e131071," * 9_000 + b"0]}"), False)],
    "unread bytes": [(make_value()[:-1] + b',"x":"\xff"}', True)],
}


def test_every_documented_rule_that_the_schema_cannot_express_has_a_test_case() -> None:
    assert DIFFERENT.keys() == contract.BEYOND_SCHEMA.keys()


@pytest.mark.parametrize("name", DIFFERENT)
def test_decoder_and_schema_disagree_only_on_rules_beyond_the_schema(name: str) -> None:
    python = jsonschema.Draft202012Validator(contract.make_whole_schema())
    for body, accepted in DIFFERENT[name]:
        try:
            decode(make_message(body), WINDOW)
            decoded = True
        except RejectedMessageError:
            decoded = False
        assert decoded is accepted
        try:
            valid = python.is_valid(json.loads(body))
        except UnicodeDecodeError:
            valid = False
        assert valid is not accepted
