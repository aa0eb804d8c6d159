"""The envelope forms that a kind can declare. A message gives the same record in each of them."""

import base64
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from history.documents.record import Record
from history.kinds import EntityKind, kinds_file
from history.kinds.entities import BY_NAME
from history.store.days.window import Window
from ingest.messages import forms as source_forms
from ingest.messages import identity
from ingest.messages.decode import (
    Decoder,
    RejectedMessageError,
    RepeatedMessageError,
    decode,
)
from ingest.messages.envelope import EnvelopeParser
from ingest.messages.identity import find_parent_and_time, identify_message
from ingest.messages.message import KafkaMessage

WINDOW: Final = Window(date(1971, 1, 1), date(2100, 1, 1))
CHILD: Final = BY_NAME["product-task"]
TOPIC: Final = CHILD.topics[0]
TYPES: Final = '{ "o.new" = "CREATE", "o.changed" = "UPDATE", "o.gone" = "DELETE" }'
PLAIN: Final = f"""
id = "/meta/key"
version = "/meta/rev"
type = "what"
updated_at = "/meta/at"
time_unit = "us"
client_id = "/meta/by~1service"
author = "/meta/who"
data = "/after"
types = {TYPES}
"""
CLOUDEVENTS: Final = f"""
form = "cloudevents"
version = "/entityversion"
author = "/actor"
types = {TYPES}
"""
DEBEZIUM: Final = """
form = "debezium"
id = "/task_id"
version = "/rev"
updated_at = "/changed_at"
client_id = "/changed_by_service"
author = "/changed_by"
"""
NUMBER: Final = "12345678901234567890.10"


TASK: Final = """
[[kind]]
name = "loan"
title = "Loan"
topic = "l"
main = true

[[kind]]
name = "task"
title = "Task"
topic = "t"
parent = "/meta/app"

[kind.envelope]
"""


def declare_kind(envelope: str, tmp_path: Path, parent: str = "/meta/app") -> EntityKind:
    """Return a child kind with this envelope, read from a file of kinds."""
    file = tmp_path / "kinds.toml"
    file.write_text(
        TASK.replace("/meta/app", parent) + envelope,
        encoding="utf-8",
    )
    return kinds_file.read_kinds_file(file)[-1]


def make_parser(envelope: str, tmp_path: Path, parent: str = "/meta/app") -> EnvelopeParser:
    parser = declare_kind(envelope, tmp_path, parent).envelope
    assert parser is not None
    return source_forms.create_parser(parser)


def make_message(value: bytes | None, headers: dict[str, str] | None = None) -> KafkaMessage:
    pairs = tuple((name, text.encode()) for name, text in (headers or {}).items())
    return KafkaMessage(TOPIC, 0, 0, -1, b"the key", value, pairs)


Wrap = Callable[[dict[str, Any]], KafkaMessage]
WORDS: Final = {"CREATE": "o.new", "UPDATE": "o.changed", "DELETE": "o.gone"}
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
DELETED: Final = 1_700_000_000_000_000


def encode_document(value: Any) -> bytes:
    return msgspec.json.encode(value)


def make_plain_message(content: dict[str, Any]) -> KafkaMessage:
    moment = datetime.fromisoformat(content["updatedAt"]).replace(tzinfo=UTC) - EPOCH
    meta = {
        "key": content["id"],
        "rev": content["version"],
        "by/service": content["clientId"],
        "who": content.get("author"),
        "app": content["productInstanceId"],
        "at": moment // timedelta(microseconds=1),
    }
    return make_message(
        encode_document({"meta": meta, "what": WORDS[content["type"]], "after": content["data"]})
    )


def _make_attributes(content: dict[str, Any]) -> dict[str, Any]:
    record = {
        "specversion": "1.0",
        "id": "event 1",
        "source": content["clientId"],
        "subject": content["id"],
        "type": WORDS[content["type"]],
        "time": content["updatedAt"],
        "entityversion": content["version"],
        "application": content["productInstanceId"],
    }
    return record | ({"actor": content["author"]} if content.get("author") else {})


def make_structured_event(content: dict[str, Any]) -> KafkaMessage:
    data = {} if bytes(content["data"]) == b"null" else {"data": content["data"]}
    return make_message(
        encode_document(
            {**_make_attributes(content), "datacontenttype": "application/json", **data}
        )
    )


def make_binary_event(content: dict[str, Any]) -> KafkaMessage:
    headers = {f"ce_{name}": str(value) for name, value in _make_attributes(content).items()}
    data = bytes(content["data"])
    headers["content-type"] = "application/json"
    return make_message(None if data == b"null" else data, headers)


def make_row(content: dict[str, Any]) -> dict[str, Any]:
    return {
        "task_id": content["id"],
        "rev": content["version"],
        "changed_at": content["updatedAt"],
        "changed_by_service": content["clientId"],
        "changed_by": content.get("author"),
        "application_id": content["productInstanceId"],
        "document": content["data"],
    }


def make_change_event(content: dict[str, Any]) -> dict[str, Any]:
    deleted = content["type"] == "DELETE"
    before = make_row({**content, "version": content["version"] - 1}) if deleted else None
    after = None if deleted else make_row(content)
    op = {"CREATE": "c", "UPDATE": "u", "DELETE": "d"}[content["type"]]
    source = {"name": "shop", "ts_ms": 1_700_000_000_000}
    return {"before": before, "after": after, "op": op, "source": source, "ts_ms": 1}


def make_bare_change_event(content: dict[str, Any]) -> KafkaMessage:
    return make_message(encode_document(make_change_event(content)))


def make_wrapped_change_event(content: dict[str, Any]) -> KafkaMessage:
    return make_message(
        encode_document(
            {"schema": {"type": "struct", "op": "x"}, "payload": make_change_event(content)}
        )
    )


FORMS: Final[dict[str, tuple[str, str, Wrap]]] = {
    "plain": (PLAIN, "/meta/app", make_plain_message),
    "structured": (CLOUDEVENTS, "/application", make_structured_event),
    "binary": (CLOUDEVENTS, "/application", make_binary_event),
    "bare": (DEBEZIUM, "/application_id", make_bare_change_event),
    "wrapped": (DEBEZIUM, "/application_id", make_wrapped_change_event),
}


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Decoder]:
    return {
        name: Decoder({TOPIC: make_parser(text, tmp_path_factory.mktemp("kinds"), parent)})
        for name, (text, parent, _) in FORMS.items()
    }


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
documents = st.dictionaries(
    texts,
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**64 - 1)
        | st.text(st.characters(exclude_categories=["Cs"])),
        lambda children: st.lists(children, max_size=3),
        max_leaves=5,
    ),
    max_size=4,
)


@given(
    id=texts.filter(lambda text: len(text) <= 32),
    version=st.integers(1, 2_147_483_647),
    type=st.sampled_from([*WORDS]),
    moment=st.datetimes(datetime(1971, 1, 2), datetime(2099, 1, 1)),  # noqa: DTZ001
    client=texts.filter(lambda text: len(text) <= 64),
    author=st.none() | texts.filter(lambda text: len(text) <= 64),
    document=documents,
    without=st.booleans(),
)
def test_message_in_any_envelope_form_gives_the_same_record_as_in_the_contract_form(
    forms: dict[str, Decoder],
    id: str,
    version: int,
    type: str,
    moment: datetime,
    client: str,
    author: str | None,
    document: dict[str, Any],
    without: bool,
) -> None:
    number = b'"\\u0065":' + NUMBER.encode() + b"}"
    text = encode_document(document)[:-1] + (b"," if document else b"") + number
    data = msgspec.Raw(b"null" if without and type == "DELETE" else text)
    page_text = {
        "id": id,
        "version": version,
        "type": type,
        "updatedAt": moment.isoformat(),
        "clientId": client,
        "author": author,
        "productInstanceId": "A1",
        "data": data,
    }
    expected = decode(make_message(encode_document(page_text)), WINDOW)
    for name, (_, _, wrap) in FORMS.items():
        sent = wrap(page_text)
        record = forms[name](sent, WINDOW)
        if wrap in (make_bare_change_event, make_wrapped_change_event):
            record = _replace_row_by_document(record, page_text, data)
        assert _decode_plain(record) == _decode_plain(expected), name


def _replace_row_by_document(record: Record, content: dict[str, Any], data: msgspec.Raw) -> Record:
    """Return a copy of a record in which the document replaces a whole database row as snapshot.

    The copy can be compared with records from all envelope forms. The function also checks that the
    old snapshot was the row, with the document in one column.

    Args:
        content: The fields of the same message in the form of the message contract.
        data: The document.
    """
    shown_text = bytes(record.data)
    assert NUMBER.encode() in shown_text or bytes(data) == b"null"
    old = {**content, "version": content["version"] - (content["type"] == "DELETE")}
    if b"\\u0000" not in shown_text:
        assert shown_text == encode_document(make_row(old))
    expected = decode(make_message(encode_document(content)), WINDOW)
    record = msgspec.structs.replace(record, data=expected.data)
    if content["type"] != "DELETE":
        return record
    # The event of a deletion has the last row, which does not say when and by whom it was deleted.
    assert (record.author, record.client_id, record.updated_at) == (None, "shop", DELETED)
    return msgspec.structs.replace(
        record, author=expected.author, client_id=expected.client_id, updated_at=expected.updated_at
    )


def _decode_plain(record: Record) -> Any:
    return msgspec.structs.astuple(msgspec.structs.replace(record, data=bytes(record.data)))


GOOD: Final = {
    "id": "T1",
    "version": 3,
    "type": "UPDATE",
    "updatedAt": "2025-07-03T11:42:48.5",
    "clientId": "crm",
    "author": "m.p",
    "productInstanceId": "A1",
    "data": msgspec.Raw(b'{"a": 1.10}'),
}


def get_refusal(decoder: Decoder, sent: KafkaMessage) -> tuple[str, str]:
    with pytest.raises(RejectedMessageError) as caught:
        decoder(sent, WINDOW)
    assert "T1" not in caught.value.detail
    return caught.value.reason.value, caught.value.detail


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "changed, reason, content",
    [
        ({"id": "x" * 33}, "bad_field", "is longer than 32 characters"),
        ({"id": ""}, "bad_field", "is empty"),
        ({"version": 2**31 + 5}, "bad_field", "is more than 2147483647"),
        ({"version": "7a"}, "bad_field", "is a text; it must be a whole number"),
        ({"clientId": "x" * 65}, "bad_field", "is longer than 64 characters"),
        ({"author": "x" * 65}, "bad_field", "is longer than 64 characters"),
        ({"productInstanceId": ""}, "no_product_instance_id", "is missing or empty"),
    ],
)
def test_message_that_breaks_the_contract_is_rejected_in_every_envelope_form(
    form: str, changed: dict[str, Any], reason: str, content: str, forms: dict[str, Decoder]
) -> None:
    sent = FORMS[form][2]({**GOOD, **changed})
    record, detail = get_refusal(forms[form], sent)
    assert record == reason, detail
    assert content in detail


def test_moments_are_read_in_each_declared_unit_of_time(tmp_path: Path) -> None:
    for unit, number in {
        "s": 1_751_542_968,
        "ms": 1_751_542_968_500,
        "us": 1_751_542_968_500_001,
        "ns": 1_751_542_968_500_001_999,
    }.items():
        decoder = Decoder({TOPIC: make_parser(PLAIN.replace('"us"', f'"{unit}"'), tmp_path)})
        value = json.loads(make_plain_message(GOOD).value or b"")
        for given_as in (number, str(number)):
            value["meta"]["at"] = given_as
            record = decoder(make_message(encode_document(value)), WINDOW).updated_at
            expected = {"s": 968_000_000, "ms": 968_500_000}.get(unit, 968_500_001)
            assert record == 1_751_542_000_000_000 + expected
        whole = "no whole number"
        for wrong, sentence in (
            (True, whole),
            (1.5, whole),
            ("2025-07", whole),
            (10**30, "out of range"),
        ):
            value["meta"]["at"] = wrong
            assert get_refusal(decoder, make_message(encode_document(value)))[0] == "bad_updated_at"
            assert sentence in get_refusal(decoder, make_message(encode_document(value)))[1]


def test_numeric_ids_are_read_as_text_and_service_can_be_a_declared_constant(
    tmp_path: Path,
) -> None:
    text = PLAIN.replace('client_id = "/meta/by~1service"', 'client = "erp"')
    decoder = Decoder({TOPIC: make_parser(text, tmp_path)})
    sent = make_plain_message({**GOOD, "id": 1004, "productInstanceId": 17})
    record = decoder(sent, WINDOW)
    assert (record.id, record.product_instance_id, record.client_id) == ("1004", "17", "erp")
    names = {TOPIC: make_parser(text, tmp_path)}
    assert identify_message(sent, names) == (CHILD.name, "1004", 3)


def test_unknown_change_types_are_refused(forms: dict[str, Decoder]) -> None:
    for form, (_, _, wrap) in FORMS.items():
        sent = wrap(GOOD)
        value = (sent.value or b"").replace(b"o.changed", b"o.other").replace(b'"u"', b'"t"')
        headers = tuple((n, v and v.replace(b"o.changed", b"x")) for n, v in sent.headers)
        wrong = msgspec.structs.replace(sent, value=value, headers=headers)
        reason, detail = get_refusal(forms[form], wrong)
        assert reason == "bad_type"
        assert "valid: " in detail


VERSION_IN_THE_DATA: Final = """
form = "cloudevents"
version = "/data/revision"
types = { "o.changed" = "UPDATE" }
"""


@pytest.mark.parametrize(
    "changed, reason, detail",
    [
        ({"time": "yesterday"}, "bad_updated_at", "`/time`, the updatedAt, must look like"),
        ({"time": "2025-02-30T11:00:00Z"}, "bad_updated_at", "`/time`, the updatedAt, is a time"),
        ({"time": "9999-01-01T11:00:00Z"}, "in_the_future", "`/time`, the updatedAt, is after"),
        ({"data": "text"}, "bad_data", "`data` is no object"),
        ({"data": [1]}, "bad_data", "`data` is no object"),
    ],
)
def test_detail_of_bad_cloudevent_says_which_attribute_is_wrong(
    changed: dict[str, Any], reason: str, detail: str, tmp_path: Path
) -> None:
    decoder = Decoder({TOPIC: make_parser(VERSION_IN_THE_DATA, tmp_path, "/application")})
    event = json.loads(
        make_structured_event({**GOOD, "data": msgspec.Raw(b'{"revision": 3}')}).value or b""
    )
    assert decoder(make_message(encode_document(event)), WINDOW).version == 3
    with pytest.raises(RejectedMessageError) as caught:
        decoder(make_message(encode_document({**event, **changed})), WINDOW)
    assert (caught.value.reason, caught.value.detail[: len(detail)]) == (reason, detail)
    assert get_refusal(decoder, make_message(encode_document([event])))[0] == "bad_field"


def test_invalid_cloudevents_are_refused(forms: dict[str, Decoder]) -> None:
    sent = json.loads(make_structured_event(GOOD).value or b"")
    for wrong in ({"specversion": "0.3"}, {"specversion": None}, {"specversion": 1}):
        parsed = get_refusal(forms["structured"], make_message(encode_document({**sent, **wrong})))
        assert parsed == ("bad_field", "`specversion` is missing or another one; it must be 1.0")
    second = {**sent, "data_base64": base64.b64encode(b"{}").decode()}
    assert get_refusal(forms["structured"], make_message(encode_document(second)))[0] == "bad_data"
    for wrong in (b"not JSON", b'"text"', b"[1]"):
        headers = dict(make_binary_event(GOOD).headers)
        texts = {name: (value or b"").decode() for name, value in headers.items()}
        assert get_refusal(forms["binary"], make_message(wrong, texts))[0] in (
            "not_json",
            "bad_data",
        )
    assert get_refusal(forms["structured"], make_message(None))[0] == "empty_value"
    # The content type decides between both modes, even if the headers occur twice.
    twice = {
        **{f"ce_{name}": "other" for name in _make_attributes(GOOD)},
        "Content-Type": "application/cloudevents+json; charset=UTF-8",
    }
    record = forms["binary"](make_message(make_structured_event(GOOD).value, twice), WINDOW)
    assert record.id == "T1"


def test_debezium_deletions_and_snapshot_rows_are_read_and_tombstones_skipped(
    forms: dict[str, Decoder],
) -> None:
    decoder = forms["bare"]
    removed = decoder(make_bare_change_event({**GOOD, "type": "DELETE"}), WINDOW)
    assert (removed.type, removed.version) == (2, 3)
    assert json.loads(bytes(removed.data))["rev"] == 2
    read = {**make_change_event(GOOD), "op": "r"}
    assert decoder(make_message(encode_document(read)), WINDOW).type == 1
    for empty in (None, b""):
        with pytest.raises(RepeatedMessageError):
            decoder(make_message(empty), WINDOW)
    lost = {**make_change_event({**GOOD, "type": "DELETE"}), "before": None}
    reason, detail = get_refusal(decoder, make_message(encode_document(lost)))
    assert reason == "bad_data"
    assert "REPLICA IDENTITY FULL" in detail
    only_key = {**lost, "before": {"task_id": "T1", "rev": None}}
    reason, detail = get_refusal(decoder, make_message(encode_document(only_key)))
    assert (reason, "REPLICA IDENTITY FULL" in detail) == ("bad_field", True)
    for source in ({}, {"ts_ms": "1", "name": "shop"}, {"ts_ms": 1}):
        unknown = {**make_change_event({**GOOD, "type": "DELETE"}), "source": source}
        assert get_refusal(decoder, make_message(encode_document(unknown)))[0] == "bad_field"
    placeholder = make_change_event(GOOD)
    placeholder["after"]["document"] = "__debezium_unavailable_value"
    reason, detail = get_refusal(decoder, make_message(encode_document(placeholder)))
    assert reason == "bad_data"
    assert "REPLICA IDENTITY FULL" in detail
    last = make_change_event({**GOOD, "type": "DELETE", "version": 2**31})
    assert get_refusal(decoder, make_message(encode_document(last)))[0] == "bad_field"


PLACEHOLDER: Final = "__debezium_unavailable_value"
ESCAPED: Final = PLACEHOLDER.replace("_", "\\u005f")
OF_BYTES: Final = list(PLACEHOLDER.encode())
WKB: Final = {
    "geometry": "AQEAACDmEAAAAAAA/IPXl8EAAAD8g9eXwQ==",
    "geography": "AQEAACDmEAAADCHn/f9/ZkAYQs77/39WQA==",
    "point": "AQEAAAAAAAD8g9eXwQAAAPyD15fB",
}
# What Debezium writes for a value that PostgreSQL did not log, by the type of the column.
UNAVAILABLE: Final[dict[str, str]] = {
    "text": f'"{PLACEHOLDER}"',
    "escaped text": f'"{ESCAPED}"',
    "a json column": json.dumps(json.dumps(PLACEHOLDER)),
    "bytea": '"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="',
    "bytea with another escape": '"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ\\u003d="',
    "binary.handling.mode=hex": f'"{PLACEHOLDER.encode().hex()}"',
    "text[]": f'["{PLACEHOLDER}"]',
    "escaped text[]": f'["{ESCAPED}"]',
    "bytea[]": '["X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="]',
    "int[]": json.dumps(OF_BYTES),
    "float[]": json.dumps([float(number) for number in OF_BYTES]),
    "numeric(9, 0)[]": json.dumps([base64.b64encode(bytes([e])).decode() for e in OF_BYTES]),
    "numeric[]": json.dumps(
        [{"scale": 0, "value": base64.b64encode(bytes([e])).decode()} for e in OF_BYTES]
    ),
    "uuid[]": '["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]',
    "hstore": json.dumps({PLACEHOLDER: PLACEHOLDER}),
    "hstore as JSON": json.dumps(json.dumps({PLACEHOLDER: PLACEHOLDER}, separators=(",", ":"))),
    "deep in an expanded document": json.dumps({"a": [{"b": PLACEHOLDER}]}),
    **{name: json.dumps({"wkb": wkb, "srid": 4326}) for name, wkb in WKB.items()},
}


def make_event_with_document(document: str) -> KafkaMessage:
    """Return a Debezium event whose column `document` has this JSON text."""
    return make_bare_change_event({**GOOD, "data": msgspec.Raw(document.encode())})


@pytest.mark.parametrize("column", UNAVAILABLE)
def test_debezium_row_is_refused_when_a_value_is_the_unavailable_placeholder(
    column: str, forms: dict[str, Decoder]
) -> None:
    reason, detail = get_refusal(forms["bare"], make_event_with_document(UNAVAILABLE[column]))
    assert (reason, "REPLICA IDENTITY FULL" in detail) == ("bad_data", True)


@pytest.mark.parametrize(
    "document",
    [
        f'"the text {PLACEHOLDER} in a sentence"',
        f'"{PLACEHOLDER}s"',
        json.dumps(OF_BYTES[:-1]),
        json.dumps([*OF_BYTES, 0]),
        json.dumps([True] * len(OF_BYTES)),
        '{"wkb": "AQEAAAAAAAAAAADwPwAAAAAAAPA/", "srid": null}',
        "[1e999, 2]",
        "9" * 5000,
    ],
)
def test_debezium_row_is_stored_when_values_only_resemble_the_placeholder(
    document: str, forms: dict[str, Decoder]
) -> None:
    assert document.encode() in bytes(
        forms["bare"](make_event_with_document(document), WINDOW).data
    )


@pytest.mark.parametrize(
    "setting, unavailable, stored",
    [
        ("__gone__", ['"__gone__"', '["__gone__"]', '"X19nb25lX18="'], UNAVAILABLE["text"]),
        ("hex:00FF80", ['"AP+A"', '"AP-A"', "[0, -1, -128]", '"00ff80"', '["AP+A"]'], "[0, 255]"),
        ("значение", ['"значение"', '"\\u0437начение"'], '"Значение"'),
    ],
)
def test_placeholder_of_debezium_can_be_declared(
    tmp_path: Path, setting: str, unavailable: list[str], stored: str
) -> None:
    text = f'{DEBEZIUM}\nunavailable_value_placeholder = "{setting}"\n'
    decoder = Decoder({TOPIC: make_parser(text, tmp_path, "/application_id")})
    for document in unavailable:
        assert get_refusal(decoder, make_event_with_document(document))[0] == "bad_data"
    assert decoder(make_event_with_document(stored), WINDOW).id == "T1"


@pytest.mark.parametrize(
    "envelope, expected_text",
    [
        (PLAIN + 'unavailable_value_placeholder = "x"', 'needs form = "debezium"'),
        (DEBEZIUM + 'unavailable_value_placeholder = "hex:FG"', "pairs of hexadecimal digits"),
        (DEBEZIUM + 'unavailable_value_placeholder = "hex:"', "pairs of hexadecimal digits"),
    ],
)
def test_wrong_declaration_of_debezium_placeholder_is_refused(
    tmp_path: Path, envelope: str, expected_text: str
) -> None:
    with pytest.raises(kinds_file.KindsError, match=expected_text):
        declare_kind(envelope, tmp_path)


def test_moment_and_service_are_taken_from_debezium_event_when_row_has_none(tmp_path: Path) -> None:
    text = 'form = "debezium"\nid = "/task_id"\nversion = "/rev"\n'
    decoder = Decoder({TOPIC: make_parser(text, tmp_path, "/application_id")})
    record = decoder(make_bare_change_event(GOOD), WINDOW)
    assert (record.updated_at, record.client_id) == (1_700_000_000_000_000, "shop")
    constant = Decoder({TOPIC: make_parser(text + 'client = "crm"\n', tmp_path, "/application_id")})
    assert constant(make_bare_change_event(GOOD), WINDOW).client_id == "crm"


@pytest.mark.parametrize("name", ["ce_trace", "ce_data", "ce_data_base64"])
def test_header_that_no_envelope_declares_is_ignored(tmp_path: Path, name: str) -> None:
    """The header may contain any bytes."""
    decoder = Decoder({TOPIC: make_parser(CLOUDEVENTS, tmp_path, "/application")})
    page_text = make_binary_event(GOOD)
    more = msgspec.structs.replace(page_text, headers=(*page_text.headers, (name, b"\xff")))
    assert decoder(more, WINDOW) == decoder(page_text, WINDOW)


@given(
    value=st.binary(max_size=60),
    headers=st.dictionaries(
        st.sampled_from(["ce_specversion", "ce_subject", "content-type"]), st.binary(max_size=9)
    ),
)
def test_arbitrary_bytes_raise_no_error_other_than_a_rejection(
    forms: dict[str, Decoder], value: bytes, headers: dict[str, bytes]
) -> None:
    for body in (value, b'{"op":"c","after":' + value + b"}", b'{"payload":' + value + b"}"):
        sent = KafkaMessage(TOPIC, 0, 0, -1, None, body, tuple(headers.items()))
        for decoder in forms.values():
            with pytest.raises(RejectedMessageError):
                decoder(sent, WINDOW)


SERVICES: Final = {
    "constant": ('version = "/v"\nclient = "loans"', b'{"id": "a"}', "loans"),
    "constant, no JSON": ('version = "/v"\nclient = "loans"', b"{ no", "loans"),
    "constant of Debezium": (
        'form = "debezium"\nid = "/i"\nversion = "/v"\nclient = "loans"',
        None,
        "loans",
    ),
    "elsewhere": ('client_id = "/meta/service"', b'{"meta": {"service": "loans"}}', "loans"),
    "of Debezium's source": (
        'form = "debezium"\nid = "/i"\nversion = "/v"',
        b'{"op": "c", "after": {}, "source": {"name": "loans"}}',
        "loans",
    ),
    "none": ('client_id = "/meta/service"', b'{"meta": {}}', ""),
    "no text": ('client_id = "/meta/service"', b'{"meta": {"service": 7}}', ""),
    "no JSON": ('client_id = "/meta/service"', b"{ no", ""),
}


@pytest.mark.parametrize("envelope, value, service", SERVICES.values(), ids=SERVICES)
def test_service_of_bad_message_is_identified_in_each_envelope_form(
    envelope: str, value: bytes | None, service: str, tmp_path: Path
) -> None:
    bad = make_message(value)
    assert identity.identify_service(bad, {bad.topic: make_parser(envelope, tmp_path)}) == service


WRONG: Final = {
    "another form": ('form = "avro"', "Invalid enum value 'avro'"),
    "no pointer": (
        'id = "/a~b"',
        'id has "/a~b", but in a JSON pointer ~ is written ~0 and / is written ~1.',
    ),
    "an empty name": (
        'version = "/a//b"',
        'version has the JSON pointer "/a//b" with an empty name. '
        'A correct pointer is, for example, "/a/b".',
    ),
    "unknown key": ('ids = "/id"', "unknown field `ids`"),
    "unknown unit": ('time_unit = "minutes"', "Invalid enum value 'minutes'"),
    "two clients": (
        'client = "a"\nclient_id = "/b"',
        "envelope has both client and client_id. Remove one.",
    ),
    "no type": ('types = { new = "INSERT" }', "Invalid enum value 'INSERT'"),
    "empty types": (
        "types = {}",
        'envelope.types is empty. Write for example { "order.created" = "CREATE" }.',
    ),
    "event without types": (
        'form = "cloudevents"\nversion = "/v"',
        "envelope.types is missing, and cloudevents has no default for it.",
    ),
    "event without version": (
        f'form = "cloudevents"\ntypes = {TYPES}',
        "envelope.version is missing, and cloudevents has no default for it.",
    ),
    "type of debezium": (
        'form = "debezium"\ntype = "/op"',
        "envelope.type must not be set: the form debezium decides it. Remove envelope.type",
    ),
    "op of debezium": (
        'form = "debezium"\ntypes = { t = "DELETE" }',
        'envelope.types has "t", but debezium has only the types c, r, u, d.',
    ),
    "unit without time": (
        'form = "debezium"\ntime_unit = "us"',
        "envelope.updated_at is not set. debezium has its own time",
    ),
}


@pytest.mark.parametrize("envelope, sentence", WRONG.values(), ids=WRONG)
def test_mistakes_in_declaration_of_envelope_are_refused(
    envelope: str, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r'kind "task": .*envelope') as caught:
        declare_kind(envelope, tmp_path)
    assert sentence in str(caught.value)


@pytest.mark.parametrize("form", FORMS)
def test_application_and_moment_of_bad_message_are_read_in_every_envelope_form(
    form: str, tmp_path: Path
) -> None:
    text, parent, wrap = FORMS[form]
    shapes = {TOPIC: make_parser(text, tmp_path, parent)}
    made_at = datetime(2025, 7, 3, 11, 42, 48, 500_000, tzinfo=UTC)
    assert find_parent_and_time(wrap({**GOOD, "version": -1}), shapes) == ("A1", made_at)
    assert find_parent_and_time(wrap({**GOOD, "productInstanceId": "x" * 33}), shapes) == (
        "",
        made_at,
    )
    assert find_parent_and_time(make_message(b"{no json"), shapes) == ("", None)


@pytest.mark.parametrize(
    "key", [b'{"task_id": "T1"}', b'{"schema": {}, "payload": {"task_id": "T1"}}']
)
def test_document_is_identified_by_message_key_when_the_event_is_unreadable(
    key: bytes, tmp_path: Path
) -> None:
    shapes = {TOPIC: make_parser(DEBEZIUM, tmp_path, "/application_id")}
    assert identify_message(KafkaMessage(TOPIC, 0, 0, -1, key, b"{no json"), shapes).id == "T1"
    for message_key in (b"T1", b"[1]", b"\xff", b'{"other": 1}', None):
        assert (
            identify_message(KafkaMessage(TOPIC, 0, 0, -1, message_key, b"{no json"), shapes).id
            == ""
        )
