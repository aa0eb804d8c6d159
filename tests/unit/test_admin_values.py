"""The screens show JSON values as the language of the page writes them, and keep every digit."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from django.utils import translation
from hypothesis import given
from hypothesis import strategies as st

from history.admin.components import values
from history.admin.components.change_rows import (
    ChangeRow,
    get_step_names,
    make_row,
    mark_differences,
)
from history.admin.components.headline import FieldTexts
from history.admin.components.values import (
    ABSENT,
    ShownValue,
    ValueItem,
    make_value,
)
from history.diff import list_changes
from history.documents.exactjson import loads
from history.models import FieldLabel
from history.store.catalogue.labels import LabelCatalogue

LABELS = LabelCatalogue(
    [
        FieldLabel(path="/rate", russian="Ставка", english="Rate", kind="percent"),
        FieldLabel(path="/cost", russian="Цена", english="Price", kind="money"),
        FieldLabel(path="/status", russian="Статус", kind="enum", words={"NEW": {"en": "New"}}),
        FieldLabel(path="/people/*/name", russian="Имя", english="Name", kind="text"),
        FieldLabel(path="/people/*/pid", kind="technical"),
    ]
)
FIELDS = FieldTexts(LABELS, "product-instance", "en")

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
def english_texts() -> Iterator[None]:
    with translation.override("en"):
        yield


def make_text(text: str, path: str = "/x") -> ShownValue:
    return make_value(loads(text), FIELDS, path)


@pytest.mark.parametrize(
    ("stored", "path", "text"),
    [
        ("null", "/x", "empty"),
        ('""', "/x", "empty text"),
        ('"  "', "/x", "only spaces"),
        ("true", "/x", "yes"),
        ("false", "/x", "no"),
        ("[]", "/x", "empty list"),
        ("{}", "/x", "no fields"),
        ("24", "/term", "24"),
        ("-2", "/x", "−2"),
        ("2017", "/year", "2017"),
        ("18.40", "/x", "18.40"),
        ("0.0000001", "/x", "0.0000001"),
        ("12345678901234567890.10", "/x", "12345678901234567890.10"),
        ("123456789012345678901234567890", "/x", "123456789012345678901234567890"),
        ('"18.4"', "/rate", "18.4 %"),
        ("18.4", "/rate", "18.4 %"),
        ('"1000000.0"', "/cost", "1 000 000.00"),
        ("1000000", "/cost", "1 000 000"),
        ("-999.5", "/cost", "−999.50"),
        ("12345678901234567890.123", "/cost", "12 345 678 901 234 567 890.123"),
        ('"1000000.0"', "/assessedAmount", "1 000 000.00"),
        ('"no money"', "/cost", "no money"),
        ('"NEW"', "/status", "New"),
        ('"LATER"', "/status", "LATER"),
        ('"1978-07-11"', "/x", "1978-07-11"),
        ('["RUB", "USD"]', "/x", "RUB, USD"),
    ],
)
def test_each_kind_of_value_is_shown_as_a_person_would_write_it(
    stored: str, path: str, text: str
) -> None:
    assert make_text(stored, path).text.replace("\N{NO-BREAK SPACE}", " ") == text


def test_values_on_russian_pages_have_russian_words_and_decimal_comma() -> None:
    with translation.override("ru"):
        fields = FieldTexts(LABELS, "product-instance", "ru")
        for stored, path, text in (
            ("18.4", "/rate", "18,4 %"),
            ("1000000", "/cost", "1 000 000"),
            ("-999.5", "/cost", "−999,50"),
            ("null", "/x", "пусто"),
            ('"1978-07-11"', "/x", "11.07.1978"),
        ):
            value = make_value(loads(stored), fields, path)
            assert value.text.replace("\N{NO-BREAK SPACE}", " ") == text
        assert fields.get_label("/rate") == "Ставка"


def test_field_label_is_shown_in_the_other_language_when_page_language_has_none() -> None:
    assert FIELDS.get_label("/status") == "Статус"


def test_moment_without_offset_is_utc() -> None:
    value = make_text('"2025-07-03T11:42:48.510186035"')
    assert (value.form, value.moment) == ("moment", "2025-07-03T11:42:48.510186035Z")
    assert value.text == "2025-07-03 11:42:48 UTC"
    with_offset = make_text('"2025-07-03T11:42:48+03:00"')
    assert with_offset.moment == "2025-07-03T11:42:48+03:00"
    assert with_offset.text == "2025-07-03 11:42:48 UTC+03:00"


def test_object_is_named_by_its_name_field_and_list_by_its_item_count() -> None:
    value = make_text(
        '[{"pid": "P1", "name": "Иван", "age": 30}, {"name": "Мария", "age": null}]', "/people"
    )
    assert value.text == "2 items"
    assert [item.name for item in value.items] == ["P1", "2"]
    first = value.items[0].value
    assert first.text == "Иван (3 fields)"
    assert [item.name for item in first.items] == [
        "Name",
        "age",
        "pid",
    ]  # a technical name comes last


@given(JSON)
def test_any_json_value_can_be_shown(value: Any) -> None:
    assert make_value(value, FIELDS, "/x").text


@given(st.integers(), st.integers(min_value=0, max_value=10**9))
def test_money_keeps_every_digit(whole: int, fraction: int) -> None:
    text = values.format_money(f"{whole}.{fraction}")
    plain = text.replace(values.SPACE, "").replace(values.MINUS, "-").replace(",", ".")
    assert Decimal(plain) == Decimal(f"{whole}.{fraction}")


def make_row_texts(old: str, new: str) -> list[tuple[tuple[str, ...], str, str, str, str]]:
    """Return path, label, note, old text and new text of each change."""
    after = loads(new)
    shown_rows = [make_row(change, after, FIELDS) for change in list_changes(loads(old), after)]
    return [(r.trail, r.label, r.note, r.old.text, r.new.text) for r in shown_rows]


def test_change_within_a_list_names_the_changed_item() -> None:
    old = '{"people": [{"pid": "1", "name": "Иван", "age": 3}, {"pid": "2", "age": 5}]}'
    new = '{"people": [{"pid": "1", "name": "Иван", "age": 4}, {"pid": "2", "age": 6}]}'
    assert make_row_texts(old, new) == [
        (("people", "Иван"), "age", "", "3", "4"),
        (("people", "2"), "age", "", "5", "6"),
    ]


def test_moved_item_shows_old_and_new_position() -> None:
    old = '{"people": [{"pid": "1"}, {"pid": "2"}, {"pid": "3"}]}'
    new = '{"people": [{"pid": "3"}, {"pid": "1"}, {"pid": "2"}]}'
    assert make_row_texts(old, new) == [((), "people", "moved 3", "place 3", "place 1")]


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("", []),
        ("/", ["(empty name)"]),
        ("/a~1b/~0", ["a/b", "~"]),
        ("/list/[pid=x~1y]/z", ["list", "x/y", "z"]),
        ("/list/[pid=abcdefghijklmnopqrstu]", ["list", "abcdefghij…"]),
        ("/scalars/1", ["scalars", "no. 2"]),
    ],
)
def test_path_of_change_is_shown_as_field_names(path: str, names: list[str]) -> None:
    assert get_step_names(path, {"scalars": [1, 2]}, FIELDS) == names


HOSTILE = "<b title='x'>\"&"
ESCAPED = "&lt;b title=&#x27;x&#x27;&gt;&quot;&amp;"
HTML = [
    ShownValue("null", HOSTILE, HOSTILE),
    ShownValue("text", HOSTILE, HOSTILE),
    ShownValue("moment", HOSTILE, HOSTILE, moment=HOSTILE),
    ShownValue("masked", HOSTILE, HOSTILE),
    ShownValue("long", HOSTILE, folded=True),
    ShownValue("long", HOSTILE, marked=(HOSTILE, HOSTILE, HOSTILE)),
    ShownValue("text", HOSTILE, marked=(HOSTILE, HOSTILE, HOSTILE)),
    ShownValue(
        "object",
        HOSTILE,
        items=(ValueItem(HOSTILE, ShownValue("number", HOSTILE, HOSTILE)),),
        hidden=3,
    ),
]


@pytest.mark.parametrize("value", HTML, ids=lambda value: value.form)
def test_html_in_values_is_escaped(value: ShownValue) -> None:
    assert ESCAPED in value.html
    assert HOSTILE not in value.html
    assert "<b" not in value.html


def test_html_in_rows_of_changes_is_escaped() -> None:
    row = ChangeRow(
        path=HOSTILE,
        trail=(HOSTILE,),
        label=HOSTILE,
        kind="changed",
        old=ABSENT,
        new=HTML[1],
        note=HOSTILE,
        filter_url=f"/?{HOSTILE}",
    )
    assert row.html.count(ESCAPED) == 7
    assert "<b" not in row.html


def test_words_that_differ_between_two_texts_are_marked() -> None:
    old = ShownValue(
        "text", "Клиент просит снизить ставку до 17 процентов и срок до 20 лет, ждёт ответа."
    )
    new = ShownValue(
        "text", "Клиент просит снизить ставку до 15 процентов и срок до 25 лет, ждёт ответа."
    )
    first, second = mark_differences(old, new)
    assert (first.marked or ())[1::2] == ("17", "20")
    assert (second.marked or ())[1::2] == ("15", "25")
    assert "".join(first.marked or ()) == old.text
    assert "процентов и срок до <mark>25</mark> лет" in second.html


def test_long_texts_are_shortened_to_the_surroundings_of_differing_words() -> None:
    middle = "слово " * 40
    first, second = mark_differences(
        *(ShownValue("long", f"Начало {n} {middle}{n} конец", folded=True) for n in (1, 2))
    )
    assert [len(part) for part in first.around] == [7, 1, 121, 1, 6]
    assert "<mark>2</mark>" in second.html
