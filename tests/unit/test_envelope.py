"""Envelopes that are not shaped as the contract has them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from history.documents.json_pointer import PointerError, PointerLookup
from history.entities import BY_NAME, BY_TOPIC, ROOT
from history.window import Window
from ingest.source.decode import Decode, Reason, Rejected
from ingest.source.envelope import ShapeError
from ingest.source.forms import shapes
from ingest.source.message import Message

WINDOW = Window(date(2025, 1, 1), date(2025, 12, 31))
TOPIC = ROOT.topics[0]
PLACES = {
    "id": "/after/key",
    "version": "/meta/rev",
    "type": "/op",
    "updatedAt": "/meta/ts~1utc",
    "clientId": "source",
    "author": "/meta/who",
    "data": "/after",
}


def message(value: Any) -> Message:
    return Message(TOPIC, 0, 0, -1, None, json.dumps(value).encode())


def declared(places: dict[str, str]) -> Any:
    return shapes(json.dumps({TOPIC: places}).encode())


def whole(**changed: Any) -> dict[str, Any]:
    return {
        "op": 1,
        "source": "crm",
        "meta": {"rev": 3, "ts/utc": "2025-07-03T11:42:48.5", "who": "m.p"},
        "after": {"key": "A1", "rate": 17.9},
        **changed,
    }


def test_fields_are_taken_from_where_the_declaration_says() -> None:
    record = Decode(declared(PLACES))(message(whole()), WINDOW)
    assert (record.id, record.version, record.type) == ("A1", 3, 1)
    assert (record.client_id, record.author) == ("crm", "m.p")
    assert datetime.fromtimestamp(record.updated_at / 1e6, UTC).isoformat() == (
        "2025-07-03T11:42:48.500000+00:00"
    )
    assert bytes(record.data) == b'{"key": "A1", "rate": 17.9}'


def test_the_empty_pointer_is_the_whole_message() -> None:
    places = {name: "/" + name for name in ("id", "version")} | {"data": ""}
    value = {"id": "A", "version": 0, "type": 0, "updatedAt": "2025-07-03T11:42:48",
             "clientId": "c", "rate": 1}  # fmt: skip
    record = Decode(declared(places))(message(value), WINDOW)
    assert json.loads(bytes(record.data)) == value


def test_a_field_that_is_not_listed_is_where_its_kind_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = replace(BY_NAME["product-task"], parent="loanId")
    monkeypatch.setitem(BY_TOPIC, task.topics[0], task)
    body = {"key": "T1", "version": 1, "type": 0, "updatedAt": "2025-07-03T11:42:48",
            "clientId": "c", "loanId": "A1", "data": {}}  # fmt: skip
    own = shapes(json.dumps({task.topics[0]: {"id": "key"}}).encode())
    sent = Message(task.topics[0], 0, 0, -1, None, json.dumps(body).encode())
    assert Decode(own)(sent, WINDOW).product_instance_id == "A1"


def test_other_topics_keep_the_contract() -> None:
    other = Message(ROOT.topics[1], 0, 0, -1, None, json.dumps(whole()).encode())
    with pytest.raises(Rejected):
        Decode(declared(PLACES))(other, WINDOW)


@pytest.mark.parametrize(
    "changed, detail",
    [
        ({"after": {"rate": 1}}, "`/after/key`, the id, is missing; it must be a text of 1"),
        ({"after": {"key": 7}}, "`/after/key`, the id, is a whole number; it must be a text of 1"),
        (
            {"meta": {"rev": -1, "ts/utc": "2025-07-03T11:42:48"}},
            "`/meta/rev`, the version, is less than 0",
        ),
        ({"source": "x" * 65}, "`/source`, the clientId, is longer than 64 characters"),
        ({"meta": {"rev": 1, "ts/utc": 5}}, "`/meta/ts~1utc`, the updatedAt, is a whole number"),
        ({"meta": 5}, "`/meta` is a whole number; it must be an object"),
        ({"meta": None}, "`/meta/rev`, the version, is missing"),
    ],
)
def test_what_breaks_a_rule_is_named(changed: dict[str, Any], detail: str) -> None:
    with pytest.raises(Rejected) as caught:
        Decode(declared(PLACES))(message(whole(**changed)), WINDOW)
    assert caught.value.reason is Reason.BAD_FIELD
    assert detail in caught.value.detail


@pytest.mark.parametrize(
    "text, detail",
    [
        (b"[]", "must be an object"),
        (b'{"no-such-topic":{}}', "no entity is declared for topic 'no-such-topic'"),
        (json.dumps({TOPIC: {"version_no": "v"}}).encode(), "'version_no' is not a field"),
    ],
)
def test_a_wrong_declaration_is_refused(text: bytes, detail: str) -> None:
    with pytest.raises(ShapeError, match=detail):
        shapes(text)


def test_a_pointer_begins_with_a_slash() -> None:
    with pytest.raises(PointerError, match="must be empty or begin with /"):
        PointerLookup([("rate", int)])


NAMES = st.text(st.sampled_from("ab/~ж"), min_size=1, max_size=3)
TREES = st.recursive(
    st.integers(-9, 9), lambda inner: st.dictionaries(NAMES, inner, min_size=1), max_leaves=12
).filter(lambda tree: isinstance(tree, dict))


@given(TREES)
def test_a_lookup_finds_every_leaf_that_a_walk_finds(tree: dict[str, Any]) -> None:
    leaves: dict[str, int] = {}

    def walk(value: Any, pointer: str) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                walk(inner, f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}")
        else:
            leaves[pointer] = value

    walk(tree, "")
    found = PointerLookup([(pointer, int) for pointer in leaves] + [("/absent!", int)])(
        msgspec.json.encode(tree)
    )
    assert found == [*leaves.values(), UNSET]


def test_a_part_may_be_wanted_with_its_whole() -> None:
    whole_part, part = PointerLookup([("/a", Raw), ("/a/b", int)])(b'{"a":{"b":5,"c":[]}}')
    assert (bytes(whole_part), part) == (b'{"b":5,"c":[]}', 5)


def test_the_example_in_the_docs_is_right() -> None:
    page = (Path(__file__).parents[2] / "docs" / "kafka.md").read_text()
    example = page.split("```json")[1].split("```")[0]
    assert shapes(example.encode())
