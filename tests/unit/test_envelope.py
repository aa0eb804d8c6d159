"""A kind can declare paths of message fields that differ from those in the message contract."""

import json
from dataclasses import replace
from datetime import date
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from history.documents.json_pointer import PointerLookup
from history.kinds.entities import BY_NAME, BY_TOPIC
from history.store.days.window import Window
from ingest.messages.decode import Decoder, Reason, RejectedMessageError
from ingest.messages.envelope import ContractEnvelopeParser
from ingest.messages.identity import identify_message
from ingest.messages.message import KafkaMessage

WINDOW = Window(date(2025, 1, 1), date(2025, 12, 31))
TASK = BY_NAME["product-task"]
TOPIC = TASK.topics[0]
BODY = {
    "id": "T1",
    "version": 1,
    "type": 0,
    "updatedAt": "2025-07-03T11:42:48",
    "clientId": "c",
    "refs": {"loan": "A1"},
    "data": {"rate": 17.9},
}


@pytest.fixture
def kinds_of_each_shape(monkeypatch: pytest.MonkeyPatch) -> dict[str, ContractEnvelopeParser]:
    monkeypatch.setitem(BY_TOPIC, TOPIC, replace(TASK, parent="/refs/loan"))
    return {TOPIC: ContractEnvelopeParser("/refs/loan")}


def make_message(**changed: Any) -> KafkaMessage:
    return KafkaMessage(TOPIC, 0, 0, -1, None, json.dumps({**BODY, **changed}).encode())


def test_application_id_is_read_from_the_field_that_its_kind_declares(
    kinds_of_each_shape: dict[str, ContractEnvelopeParser],
) -> None:
    record = Decoder(kinds_of_each_shape)(make_message(), WINDOW)
    assert (record.id, record.version, record.product_instance_id) == ("T1", 1, "A1")
    assert bytes(record.data) == b'{"rate": 17.9}'
    assert identify_message(make_message(), kinds_of_each_shape) == (TASK.name, "T1", 1)


@pytest.mark.parametrize(
    "changed, reason, detail",
    [
        ({"id": 7}, Reason.BAD_FIELD, "`/id`, the id, is a whole number; it must be a text of 1"),
        ({"refs": {}}, Reason.NO_APPLICATION, "`/refs/loan` is missing or empty"),
        ({"refs": {"loan": 7}}, Reason.BAD_FIELD, "`/refs/loan`, the productInstanceId, is a"),
        ({"refs": 5}, Reason.BAD_FIELD, "`/refs` is a whole number; it must be an object"),
        ({"version": None}, Reason.BAD_FIELD, "`/version`, the version, is "),
    ],
)
def test_rejection_of_message_names_the_field_and_the_broken_rule(
    changed: dict[str, Any],
    reason: Reason,
    detail: str,
    kinds_of_each_shape: dict[str, ContractEnvelopeParser],
) -> None:
    with pytest.raises(RejectedMessageError) as caught:
        Decoder(kinds_of_each_shape)(make_message(**changed), WINDOW)
    assert caught.value.reason is reason
    assert detail in caught.value.detail


NAMES = st.text(st.sampled_from("ab/~ж"), min_size=1, max_size=3)
TREES = st.recursive(
    st.integers(-9, 9), lambda inner: st.dictionaries(NAMES, inner, min_size=1), max_leaves=12
).filter(lambda tree: isinstance(tree, dict))


@given(TREES)
def test_pointer_lookup_finds_every_value_of_a_document(tree: dict[str, Any]) -> None:
    leaves: dict[str, int] = {}

    def walk(value: Any, pointer: str) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                walk(inner, f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}")
        else:
            leaves[pointer] = value

    walk(tree, "")
    result = PointerLookup([(pointer, int) for pointer in leaves] + [("/absent!", int)])(
        msgspec.json.encode(tree)
    )
    assert result == [*leaves.values(), UNSET]
