"""How JSON values read on the screens: in the reader's way, with every digit, never failing."""

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from django.utils import translation
from hypothesis import given
from hypothesis import strategies as st

from history.admin.parts import values
from history.admin.parts.change_rows import ChangeRow, mark_differences, row, steps
from history.admin.parts.headline import Fields
from history.admin.parts.values import ABSENT, MAX_ITEMS, Item, Value, readable
from history.diff import changes
from history.documents.exactjson import loads
from history.labels import Catalogue
from history.models import FieldLabel

LABELS = Catalogue(
    [
        FieldLabel(path="/rate", russian="Ставка", english="Rate", kind="percent"),
        FieldLabel(path="/cost", russian="Цена", english="Price", kind="money"),
        FieldLabel(path="/status", russian="Статус", kind="enum", words={"NEW": {"ru": "Новая"}}),
        FieldLabel(path="/people/*/name", russian="Имя", kind="text"),
    ]
)
FIELDS = Fields(LABELS, "product-instance", "ru")

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.decimals(allow_nan=False, allow_infinity=False),
    lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside),
    max_leaves=30,
)


@pytest.fixture(autouse=True)
def _russian() -> Iterator[None]:
    with translation.override("ru"):
        yield


def shown(text: str, path: str = "/x") -> Value:
    return readable(loads(text), FIELDS, path)


@pytest.mark.parametrize(
    ("stored", "path", "text"),
    [
        ("null", "/x", "пусто"),
        ('""', "/x", "пустая строка"),
        ('"  "', "/x", "только пробелы"),
        ("true", "/x", "да"),
        ("false", "/x", "нет"),
        ("[]", "/x", "пустой список"),
        ("{}", "/x", "нет полей"),
        ("24", "/term", "24"),
        ("-2", "/x", "−2"),
        ("2017", "/year", "2017"),
        ("18.40", "/x", "18,40"),
        ("0.0000001", "/x", "0,0000001"),
        ("12345678901234567890.10", "/x", "12345678901234567890,10"),
        ("123456789012345678901234567890", "/x", "123456789012345678901234567890"),
        ('"18.4"', "/rate", "18,4 %"),
        ("18.4", "/rate", "18,4 %"),
        ('"1000000.0"', "/cost", "1 000 000,00"),
        ("1000000", "/cost", "1 000 000"),
        ("-999.5", "/cost", "−999,50"),
        ("12345678901234567890.123", "/cost", "12 345 678 901 234 567 890,123"),
        ('"1000000.0"', "/assessedAmount", "1 000 000,00"),
        ('"no money"', "/cost", "no money"),
        ('"NEW"', "/status", "Новая"),
        ('"LATER"', "/status", "LATER"),
        ('"1978-07-11"', "/x", "11.07.1978"),
        ('["RUB", "USD"]', "/x", "RUB, USD"),
    ],
)
def test_reads_as_a_person_writes(stored: str, path: str, text: str) -> None:
    assert shown(stored, path).text.replace("\N{NO-BREAK SPACE}", " ") == text


def test_english_has_its_own_words_and_point() -> None:
    with translation.override("en"):
        fields = Fields(LABELS, "product-instance", "en")
        assert readable(Decimal("18.4"), fields, "/rate").text == "18.4\N{NO-BREAK SPACE}%"
        assert readable(None, fields, "/rate").text == "empty"
        assert fields.label("/rate") == "Rate"
        assert fields.label("/status") == "Статус"  # rather the other language than nothing


def test_a_moment_without_an_offset_is_utc_and_left_to_the_browser() -> None:
    value = shown('"2025-07-03T11:42:48.510186035"')
    assert (value.form, value.moment) == ("moment", "2025-07-03T11:42:48.510186035Z")
    assert value.text == "03.07.2025 11:42:48 UTC"
    with_offset = shown('"2025-07-03T11:42:48+03:00"')
    assert with_offset.moment == "2025-07-03T11:42:48+03:00"
    assert with_offset.text == "03.07.2025 11:42:48 UTC+03:00"


def test_a_long_text_is_folded_and_whole() -> None:
    text = "слово " * 200
    value = readable(text, FIELDS, "/x")
    assert (value.form, value.folded, value.text) == ("long", True, text)
    assert len(value.head) < 130


def test_objects_and_lists_name_what_they_hold() -> None:
    value = shown(
        '[{"pid": "P1", "name": "Иван", "age": 30}, {"name": "Мария", "age": null}]', "/people"
    )
    assert value.text == "2 элемента"
    assert [item.name for item in value.items] == ["P1", "2"]
    first = value.items[0].value
    assert first.text == "Иван (3 поля)"
    assert [item.name for item in first.items] == ["pid", "Имя", "age"]


def test_a_long_list_tells_how_many_are_not_shown() -> None:
    value = readable([{"pid": n} for n in range(MAX_ITEMS + 7)], FIELDS, "/x")
    assert (len(value.items), value.hidden) == (MAX_ITEMS, 7)


@given(JSON)
def test_anything_can_be_shown(value: Any) -> None:
    assert readable(value, FIELDS, "/x").text


def test_deep_nesting_ends_in_its_json() -> None:
    value = shown('{"a":' * 60 + "1" + "}" * 60)
    while value.items:
        value = value.items[0].value
    assert value.form == "long"
    assert json.loads(value.text)


@given(st.text(min_size=1), st.text(min_size=1))
def test_marking_cuts_texts_without_losing_a_letter(old: str, new: str) -> None:
    for before, after in ((old, new), (old * 20 + new, old * 20 + "+" + new)):
        for side, text in zip(
            mark_differences(Value("text", before), Value("text", after)),
            (before, after),
            strict=True,
        ):
            assert side.marked is None or "".join(side.marked) == text


def test_marks_whole_words() -> None:
    old = Value("text", "Договор подписан клиентом лично, отправлен на регистрацию в реестр")
    new = Value("text", "Договор подписан клиентом заочно, отправлен на регистрацию в реестр")
    before, after = mark_differences(old, new)
    assert before.marked is not None
    assert after.marked is not None
    assert (before.marked[1], after.marked[1]) == ("лично", "заочно")


def test_what_reads_the_same_but_differs_is_shown_as_stored() -> None:
    old, new = mark_differences(shown('"1000000.0"', "/cost"), shown("1000000.00", "/cost"))
    assert (old.text, new.text) == ('"1000000.0"', "1000000.00")


@given(st.integers(), st.integers(min_value=0, max_value=10**9))
def test_money_keeps_every_digit(whole: int, fraction: int) -> None:
    text = values.money(f"{whole}.{fraction}")
    plain = text.replace(values.SPACE, "").replace(values.MINUS, "-").replace(",", ".")
    assert Decimal(plain) == Decimal(f"{whole}.{fraction}")


def rows_of(old: str, new: str) -> list[tuple[tuple[str, ...], str, str, str, str]]:
    """Trail, label, note, old text, new text of each change."""
    after = loads(new)
    shown_rows = [row(change, after, FIELDS) for change in changes(loads(old), after)]
    return [(r.trail, r.label, r.note, r.old.text, r.new.text) for r in shown_rows]


def test_a_change_names_its_field() -> None:
    assert rows_of('{"rate": "18.4"}', '{"rate": "17.9"}') == [
        ((), "Ставка", "", "18,4\N{NO-BREAK SPACE}%", "17,9\N{NO-BREAK SPACE}%")
    ]


def test_a_change_within_a_list_names_the_item() -> None:
    old = '{"people": [{"pid": "1", "name": "Иван", "age": 3}, {"pid": "2", "age": 5}]}'
    new = '{"people": [{"pid": "1", "name": "Иван", "age": 4}, {"pid": "2", "age": 6}]}'
    assert rows_of(old, new) == [
        (("people", "Иван"), "age", "", "3", "4"),
        (("people", "2"), "age", "", "5", "6"),
    ]


def test_added_and_removed_items_are_named() -> None:
    old = '{"people": [{"pid": "1", "name": "Иван"}, {"pid": "77"}]}'
    new = '{"people": [{"pid": "1", "name": "Иван"}, {"pid": "3", "name": "Мария"}]}'
    found = rows_of(old, new)
    assert (("people",), "Мария", "", ABSENT.text, "Мария (2 поля)") in found
    assert ((), "people", "77", "1 поле", ABSENT.text) in found


def test_a_moved_item_tells_from_where_to_where() -> None:
    old = '{"people": [{"pid": "1"}, {"pid": "2"}, {"pid": "3"}]}'
    new = '{"people": [{"pid": "3"}, {"pid": "1"}, {"pid": "2"}]}'
    assert rows_of(old, new) == [((), "people", "перемещено 3", "место 3", "место 1")]


def test_a_document_that_ends_is_one_row() -> None:
    assert rows_of('{"a": 1}', "null") == [((), "весь документ", "", "1 поле", "пусто")]


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("", []),
        ("/", ["(пустое имя)"]),
        ("/a~1b/~0", ["a/b", "~"]),
        ("/list/[pid=x~1y]/z", ["list", "x/y", "z"]),
        ("/list/[pid=abcdefghijklmnopqrstu]", ["list", "abcdefghij…"]),
        ("/scalars/1", ["scalars", "№ 2"]),
    ],
)
def test_paths_read_as_names(path: str, names: list[str]) -> None:
    assert steps(path, {"scalars": [1, 2]}, FIELDS) == names


HOSTILE = "<b title='x'>\"&"
ESCAPED = "&lt;b title=&#x27;x&#x27;&gt;&quot;&amp;"
HTML = [
    Value("null", HOSTILE, HOSTILE),
    Value("text", HOSTILE, HOSTILE),
    Value("moment", HOSTILE, HOSTILE, moment=HOSTILE),
    Value("masked", HOSTILE, HOSTILE),
    Value("long", HOSTILE, folded=True),
    Value("long", HOSTILE, marked=(HOSTILE, HOSTILE, HOSTILE)),
    Value("text", HOSTILE, marked=(HOSTILE, HOSTILE, HOSTILE)),
    Value("object", HOSTILE, items=(Item(HOSTILE, Value("number", HOSTILE, HOSTILE)),), hidden=3),
]


@pytest.mark.parametrize("value", HTML, ids=lambda value: value.form)
def test_a_value_is_escaped_wherever_it_stands(value: Value) -> None:
    assert ESCAPED in value.html
    assert HOSTILE not in value.html
    assert "<b" not in value.html


def test_a_row_of_a_change_is_escaped() -> None:
    made = ChangeRow(
        path=HOSTILE, trail=(HOSTILE,), label=HOSTILE, kind="changed",
        old=ABSENT, new=HTML[1], note=HOSTILE, filter_url=f"/?{HOSTILE}",
    )  # fmt: skip
    assert made.html.count(ESCAPED) == 7
    assert "<b" not in made.html


def test_html_is_in_the_language_of_its_reader() -> None:
    assert 'title="такого поля нет"' in ABSENT.html
    with translation.override("en"):
        assert 'title="no such field"' in ABSENT.html
