"""Numbers come out as they came in, and what is not JSON is refused."""

import copy
import json
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from history.diff import DEFAULT, compare, differs, find, touches
from history.diff.blame import BlameWalk
from history.documents import exactjson
from history.documents.exactjson import (
    DEEPEST,
    Alike,
    dumps,
    indented,
    is_deeper,
    loads,
    loads_shallow,
    opened,
)
from tests.unit.diff_documents import DOCUMENTS, exact

LONG = "9" * 5000

NUMBERS = [
    *("0", "-1", "1.0", "1.00", "-0.0", "0.1", "12345678901234567890.10", "18446744073709551615"),
    *("18446744073709551616", "-9223372036854775809", "9" * 4300, LONG, "-" + LONG, LONG + ".50"),
    *("0." + "0" * 50 + "1", "1E+2", "1e2", "1.50E1", "0.0000000", "1E-400", "1E+400"),
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


@given(DOCUMENTS)
def test_any_document_survives(document: Any) -> None:
    assert exact(loads(dumps(document))) == exact(document)
    both = [{"same": document, "other": document}, {"same": document, "other": [document]}]
    old, new = Alike(loads).both(*map(dumps, both))
    assert exact([old, new]) == exact(both)
    assert old["same"] is new["same"]


def test_of_texts_that_are_compared_the_earlier_ones_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Alike, "MOST", 60)
    texts, alike = [dumps({"n": number, "same": [1]}) for number in range(9)], Alike(loads)
    first = alike.value(texts[0])
    for before, after in pairwise(texts):
        old, new = alike.both(before, after)
        assert old["same"] is new["same"]
    assert alike.value(texts[0]) is not first


def test_text_is_kept_as_it_is() -> None:
    text = '{"ключ / ~":"🏠 \\u0000 \\" \\\\ Прыгунов","":[]}'
    assert dumps(loads(text)).decode() == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "nul", "NaN", "Infinity", "[-Infinity]", "01", "1.", ".5", "+1", "[1,]"),
        *('{"a":1,}', "{'a':1}", '"\\ud800"', "1 2", "1E+99999999999999999999", b"\xff", b'"\xff"'),
        *("[" * 100_000, "[" * 100_000 + "]" * 100_000),
        # next to a number that needs the slow way
        *(f'[{LONG}, "\\ud800"]', f"[{LONG}, NaN]", f"[{LONG}, 1E+99999999999999999999]"),
        *(f"[{LONG}, ]", f"[{LONG}, " + "[" * 100_000 + "]" * 100_001),
    ],
    ids=lambda text: repr(text[:12]) + repr(text[-12:]),
)
def test_what_is_not_json_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - json, msgspec and codecs each have their own
        loads(text)


DEPTHS = [DEEPEST - 1, DEEPEST, DEEPEST + 1, 2 * DEEPEST + 1, 900, 6000]


def nested(levels: int, inside: str = "1") -> bytes:
    """Objects and lists in turn, `levels` of them around a value, with something next to each."""
    text = inside
    for level in range(levels):
        text = f'{{"a": {text}, "]}}\\"": 0.50}}' if level % 2 else f'[{text}, "{{["]'
    return text.encode()


@pytest.mark.parametrize("levels", DEPTHS)
def test_a_deep_document_is_read_and_written_as_it_is(levels: int) -> None:
    text = nested(levels)
    assert is_deeper(text, levels - 1)
    assert not is_deeper(text, levels)
    assert is_deeper(text, DEEPEST) == (levels > DEEPEST)
    for read in (loads_shallow, Alike(loads_shallow).value):
        assert dumps(read(text)).replace(b" ", b"") == text.replace(b" ", b"")


@pytest.mark.parametrize("levels", DEPTHS)
def test_the_innermost_value_is_found_and_compared(levels: int) -> None:
    old, new = loads_shallow(nested(levels)), loads_shallow(nested(levels, "2"))
    path = "".join("/a" if level % 2 else "/0" for level in reversed(range(levels)))
    assert find(path, new) == [(path, 2)]
    assert find(f"{path}/x", new) == []
    assert differs(path, old, new)
    assert touches(path, old, new)
    assert not differs(path, new, loads_shallow(nested(levels, "2")))
    assert not touches('/]}"' if levels % 2 == 0 else "/1", old, new)
    found = compare(old, new)
    assert len(found.changes) == 1
    assert found.changes[0].path == path[: len(found.changes[0].path)]
    assert dumps(found.changes)
    assert compare(old, loads_shallow(nested(levels))).changes == ()


@pytest.mark.parametrize("levels", DEPTHS)
@pytest.mark.parametrize(
    "was, now, same",
    [
        ("1", "1.00", True),
        ("100", "1e2", True),
        ("-0.5", "-5E-1", True),
        ("1", "10", False),
        ("1", '"1"', False),
        ('"1"', '"1.0"', False),
        ("1", "true", False),
        ("1", "[1]", False),
    ],
)
def test_a_number_that_is_written_in_another_way_is_no_change_at_any_depth(
    levels: int, was: str, now: str, same: bool
) -> None:
    old, new = loads_shallow(nested(levels, was)), loads_shallow(nested(levels, now))
    found = compare(old, new)
    assert (found.changes == ()) is same
    assert [operation["op"] for operation in found.patch] == ["replace"]
    blamed = {}
    blame = BlameWalk(new, DEFAULT, blamed.__setitem__)
    blame.step(old, "new")
    blame.finish("old")
    assert set(blamed.values()) == ({"old"} if same else {"old", "new"})


@given(DOCUMENTS, st.integers(1, 4))
def test_cut_anywhere_it_is_the_same_document(document: Any, deepest: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exactjson, "DEEPEST", deepest)
        cut = loads_shallow(dumps(document))
        assert dumps(cut) == dumps(document)
        assert exact(whole(cut)) == exact(document)


def whole(value: Any) -> Any:
    value = opened(value)
    if isinstance(value, dict):
        return {key: whole(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [whole(inner) for inner in value]
    return value


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), max_size=8), st.integers(0, 60))
def test_nesting_is_that_of_the_deepest_place(turns: list[tuple[int, int]], levels: int) -> None:
    """Up and down: so many brackets are closed, so many opened."""
    text, now, deepest = "", 0, 0
    for most, up in turns:
        down = min(most, now)
        text += "]" * down + ("," if text and not text.endswith("[") else "") + "[" * up
        now += up - down
        deepest = max(deepest, now)
    assert is_deeper((text + "]" * now).encode(), levels) == (deepest > levels)


@pytest.mark.parametrize("levels", DEPTHS)
def test_deep_json_is_indented_up_to_a_limit(levels: int) -> None:
    text = nested(levels)
    shown = indented(text)
    assert len(shown) < 40 * DEEPEST**2 + 60 * levels
    assert shown.replace("\n", "").replace(" ", "") == text.decode().replace(" ", "")


@given(DOCUMENTS, st.integers(0, 4))
def test_indented_is_what_json_would_write(document: Any, deepest: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        text = dumps(document)
        expected = json.loads(text)
        patch.setattr(exactjson, "DEEPEST", deepest)
        shown = indented(text)
        assert json.loads(shown) == expected
        assert "[\n]" not in shown


def test_small_deep_items_without_keys_are_still_paired() -> None:
    def item(kind: str, value: int, levels: int = 90) -> Any:
        deep: Any = value
        for _ in range(levels):
            deep = {"x": deep}
        return {"kind": kind, "of": kind, "deep": deep}

    old, new = [item("a", 1), item("b", 2)], [item("c", 5), item("a", 3), item("b", 4)]

    def far_down(frames: int) -> list[str]:
        """Called as far down the stack as a web request is."""
        if frames:
            return far_down(frames - 1)
        blamed: dict[str, int] = {}
        walk: BlameWalk[int] = BlameWalk(new, DEFAULT, blamed.__setitem__)
        walk.step(old, 1)
        walk.finish(0)
        assert [path for path, version in blamed.items() if version == 0] == [
            *("/1/kind", "/1/of", "/2/kind", "/2/of")
        ]
        return [f"{change.kind} {change.path}" for change in compare(old, new).changes]

    below = "/x" * 90
    assert far_down(300) == ["added /0", f"changed /1/deep{below}", f"changed /2/deep{below}"]
