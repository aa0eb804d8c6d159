"""docs/contract.md: the examples have the reasons that it says, and its rules are those of code."""

import json
import re
from datetime import date
from typing import Any

import jsonschema
import pytest
from django.utils.translation import override

from history.daily.window import Window
from history.entities import BY_NAME, ENTITIES
from ingest.quarantine.details import in_words
from ingest.source.decode import Reason, RejectedMessage, decode
from ingest.source.envelope import name_declared_field
from scripts import message_schema as contract
from scripts import pages as docs
from scripts.contract_page import BREACHES, good, value
from tests.messages import CHILD, message

WINDOW = Window(date(2026, 9, 1), date(2026, 12, 1))
DECODED = [reason for reason in Reason if BREACHES[reason].example is not None
           and not BREACHES[reason].by_database]  # fmt: skip
PAGE = (docs.DOCS / "contract.md").read_text()


def test_every_reason_is_described() -> None:
    assert list(BREACHES) == list(Reason)


@pytest.mark.parametrize("reason", DECODED)
def test_the_example_has_its_reason(reason: Reason) -> None:
    example = BREACHES[reason].example
    assert example is not None
    with pytest.raises(RejectedMessage) as caught:
        decode(message(value(example), topic=CHILD), WINDOW)
    assert caught.value.reason is reason
    detail = caught.value.detail
    places = {name: f"/at/{name}" for name in re.findall("`([A-Za-z]+)`", detail)}
    with override("ru"):
        both = f"{in_words(detail)} {in_words(name_declared_field(detail, places))}"
    said = re.sub(r"<code>.*?</code>|JSON|UTF-8|null|\([A-Za-z]+\)", "", both)
    assert not re.search(r"[a-z]{3}", said), said


def test_the_example_of_a_good_message_is_good() -> None:
    text = PAGE.partition("```json\n")[2].partition("```")[0]
    assert decode(message(text.encode(), topic=CHILD), WINDOW).product_instance_id == "A1"
    jsonschema.validate(json.loads(text), contract.of_entity(BY_NAME["product-task"]))


def test_the_sentence_of_the_page_is_the_one_that_is_said() -> None:
    with pytest.raises(RejectedMessage) as caught:
        decode(message(value(BREACHES[Reason.BAD_FIELD].example or ""), topic=CHILD), WINDOW)
    assert f"\nbad_field   {caught.value.detail}\n" in PAGE


def resolved(document: Any, reference: str) -> Any:
    for name in reference.removeprefix("#/").split("/"):
        document = document[name]
    return document


def references(part: Any) -> list[str]:
    inner = (
        list(part.values()) if isinstance(part, dict) else part if isinstance(part, list) else []
    )
    own = [part["$ref"]] if isinstance(part, dict) and "$ref" in part else []
    return own + [each for one in inner for each in references(one)]


def test_the_asyncapi_document_has_every_topic_with_the_messages_of_its_kind() -> None:
    document = contract.document()
    assert document["asyncapi"] == "3.0.0"
    assert all(resolved(document, each) for each in references(document))
    topics = {topic: entity.name for entity in ENTITIES for topic in entity.topics}
    assert {each["address"]: [*each["messages"]] for each in document["channels"].values()} == {
        topic: [name] for topic, name in topics.items()
    }
    read = [resolved(document, each["channel"]["$ref"]) for each in document["operations"].values()]
    assert [each["address"] for each in read] == list(topics)


@pytest.mark.parametrize("entity", ENTITIES, ids=lambda entity: entity.name)
def test_the_payload_of_a_channel_is_the_schema_of_its_kind(entity: Any) -> None:
    document = contract.document()
    payload = resolved(document, document["components"]["messages"][entity.name]["payload"]["$ref"])
    validator = jsonschema.Draft202012Validator({**document, **payload})
    whole = json.loads(good())
    assert validator.is_valid(whole)
    del whole["productInstanceId"]
    assert validator.is_valid(whole) is (entity.parent is None)
