"""Numbers come out as they came in, and what is not JSON is refused."""

import copy
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from history.documents.exactjson import dumps, loads
from tests.unit.diff_documents import DOCUMENTS, equal, exact

LONG = "9" * 5000

NUMBERS = [
    "0",
    "-1",
    "1.0",
    "1.00",
    "-0.0",
    "0.1",
    "12345678901234567890.10",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775809",
    "9" * 4300,
    LONG,
    "-" + LONG,
    LONG + ".50",
    "0." + "0" * 50 + "1",
    "1E+2",
    "1e2",
    "1.50E1",
    "0.0000000",
    "-0.00000012",
    "1E-400",
    "1E+400",
]


@pytest.mark.parametrize("text", NUMBERS, ids=lambda text: text[:24])
@pytest.mark.parametrize("around", ["{}", "[{}]", '{{"a": {{"b": [{}, "x"]}}}}'])
def test_a_number_comes_out_digit_for_digit(text: str, around: str) -> None:
    document = around.format(text)
    for form in (document, document.encode()):
        assert dumps(loads(form)).decode() == document.replace(" ", "")


@given(
    st.from_regex(r"-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,9})?", fullmatch=True)
)
def test_any_number_comes_out_as_it_was_written(text: str) -> None:
    value = loads(text)
    assert value == Decimal(text)
    assert dumps(value).decode() == ("0" if text == "-0" else text)
    assert dumps(copy.deepcopy([value])).decode() == ("[0]" if text == "-0" else f"[{text}]")


@given(st.integers())
def test_whole_numbers_are_int(number: int) -> None:
    value = loads(str(number))
    assert type(value) is int
    assert value == number


@given(DOCUMENTS)
def test_any_document_survives(document: Any) -> None:
    assert exact(loads(dumps(document))) == exact(document)


@given(DOCUMENTS)
def test_the_standard_library_reads_the_same(document: Any) -> None:
    read = json.loads(dumps(document), parse_float=Decimal)
    assert equal(read, document)


def test_what_is_not_a_json_value_is_not_written() -> None:
    with pytest.raises(TypeError, match="object"):
        dumps(object())


def test_true_false_and_null_are_not_numbers() -> None:
    assert exact(loads("[true, false, null, 1, 0]")) == exact([True, False, None, 1, 0])


def test_text_is_kept_as_it_is() -> None:
    text = '{"ключ / ~":"🏠 \\u0000 \\" \\\\ Прыгунов","":[]}'
    assert dumps(loads(text)).decode() == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "nul",
        "NaN",
        "Infinity",
        "[-Infinity]",
        "01",
        "1.",
        ".5",
        "+1",
        "[1,]",
        '{"a":1,}',
        "{'a':1}",
        '"\\ud800"',
        "1 2",
        "1E+99999999999999999999",
        "[" * 100_000,
        "[" * 100_000 + "]" * 100_000,
        # the same next to a number that needs the slow way
        f'[{LONG}, "\\ud800"]',
        f"[{LONG}, NaN]",
        f"[{LONG}, 1E+99999999999999999999]",
        f"[{LONG}, ]",
        f"[{LONG}, " + "[" * 100_000 + "]" * 100_001,
        b"\xff",
        b'"\xff"',
    ],
    ids=lambda text: repr(text[:12]) + repr(text[-12:]),
)
def test_what_is_not_json_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - json, msgspec and codecs each have their own
        loads(text)
