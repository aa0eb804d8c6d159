"""The examples, reject reasons and rules of docs/contract.md agree with the decoder."""

import json
import re
from datetime import date
from typing import Any

import jsonschema
import pytest
from django.utils.translation import override

from history.kinds.entities import BY_NAME, ENTITIES
from history.store.days.window import Window
from ingest.messages.decode import decode
from ingest.messages.rejection import Reason, RejectedMessageError
from ingest.quarantine.details import translate_detail
from scripts import message_schema as contract
from scripts import pages as docs
from scripts.contract_page import BREACHES, expand_example, make_good_message
from tests.messages import CHILD_TOPIC, make_message

WINDOW = Window(date(2026, 9, 1), date(2026, 12, 1))
DECODED = [
    reason
    for reason in Reason
    if BREACHES[reason].example is not None and not BREACHES[reason].by_database
]
PAGE = (docs.DOCS / "contract.md").read_text()


def test_contract_page_describes_every_reason_of_bad_messages() -> None:
    assert list(BREACHES) == list(Reason)


@pytest.mark.parametrize("reason", DECODED)
def test_documented_example_of_each_reason_is_rejected_for_this_reason(reason: Reason) -> None:
    example = BREACHES[reason].example
    assert example is not None
    with pytest.raises(RejectedMessageError) as caught:
        decode(make_message(expand_example(example), topic=CHILD_TOPIC), WINDOW)
    assert caught.value.reason is reason
    explanation = caught.value.explanation
    declared = explanation.name_field({explanation.field: f"/at/{explanation.field}"})
    with override("ru"):
        pair = " ".join(
            translate_detail(text.english, text.to_json()) for text in (explanation, declared)
        )
    page_text = re.sub(r"<code>.*?</code>|JSON|UTF-8|null|\([A-Za-z]+\)", "", pair)
    assert not re.search(r"[a-z]{3}", page_text), page_text


def test_good_example_message_is_decoded() -> None:
    text = PAGE.partition("```json\n")[2].partition("```")[0]
    assert (
        decode(make_message(text.encode(), topic=CHILD_TOPIC), WINDOW).product_instance_id == "A1"
    )
    jsonschema.validate(json.loads(text), contract.make_entity_schema(BY_NAME["product-task"]))


def test_contract_page_quotes_the_detail_that_the_decoder_gives() -> None:
    with pytest.raises(RejectedMessageError) as caught:
        decode(
            make_message(
                expand_example(BREACHES[Reason.BAD_FIELD].example or ""), topic=CHILD_TOPIC
            ),
            WINDOW,
        )
    assert f"\nbad_field   {caught.value.detail}\n" in PAGE


def resolve_references(document: Any, reference: str) -> Any:
    for name in reference.removeprefix("#/").split("/"):
        document = document[name]
    return document


def find_references(part: Any) -> list[str]:
    inner = (
        list(part.values()) if isinstance(part, dict) else part if isinstance(part, list) else []
    )
    references = [part["$ref"]] if isinstance(part, dict) and "$ref" in part else []
    return references + [reference for item in inner for reference in find_references(item)]


def test_asyncapi_lists_every_topic_with_messages_of_its_kind() -> None:
    document = contract.make_asyncapi()
    assert document["asyncapi"] == "3.0.0"
    assert all(resolve_references(document, reference) for reference in find_references(document))
    topics = {topic: entity.name for entity in ENTITIES for topic in entity.topics}
    assert {
        channel["address"]: [*channel["messages"]] for channel in document["channels"].values()
    } == {topic: [name] for topic, name in topics.items()}
    read = [
        resolve_references(document, operation["channel"]["$ref"])
        for operation in document["operations"].values()
    ]
    assert [item["address"] for item in read] == list(topics)


@pytest.mark.parametrize("entity", ENTITIES, ids=lambda entity: entity.name)
def test_payload_schema_in_asyncapi_is_the_schema_of_its_kind(entity: Any) -> None:
    document = contract.make_asyncapi()
    payload = resolve_references(
        document, document["components"]["messages"][entity.name]["payload"]["$ref"]
    )
    validator = jsonschema.Draft202012Validator({**document, **payload})
    whole = json.loads(make_good_message())
    assert validator.is_valid(whole)
    del whole["productInstanceId"]
    assert validator.is_valid(whole) is (entity.parent is None)
