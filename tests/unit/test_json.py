"""Reading and writing JSON keeps the digits of numbers, and text that is not JSON is refused."""

import copy
import json
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from history.diff import DEFAULT_IDENTITY, compare_snapshots, find_values, is_different, is_touched
from history.diff.blame import BlameWalk
from history.documents import exactjson
from history.documents.exactjson import (
    MAX_PARSED_LEVELS,
    SnapshotCache,
    dumps,
    format_indented,
    is_deeper,
    loads,
    loads_shallow,
    open_raw,
)
from tests.unit.diff_documents import DOCUMENTS, make_exact

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
    "1E-400",
    "1E+400",
]


@pytest.mark.parametrize("text", NUMBERS, ids=lambda text: text[:24])
@pytest.mark.parametrize("around", ["{}", "[{}]", '{{"a": {{"b": [{}, "x"]}}}}'])
def test_every_digit_of_a_number_survives_loads_and_dumps(text: str, around: str) -> None:
    document = around.format(text)
    for form in (document, document.encode()):
        assert dumps(loads(form)).decode() == document.replace(" ", "")


@given(
    st.from_regex(r"-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,9})?", fullmatch=True)
)
def test_any_number_is_read_and_written_unchanged(text: str) -> None:
    value = loads(text)
    assert value == Decimal(text)
    assert dumps(value).decode() == ("0" if text == "-0" else text)
    assert dumps(copy.deepcopy([value])).decode() == ("[0]" if text == "-0" else f"[{text}]")


@given(DOCUMENTS)
def test_every_value_survives_dumps_and_loads(document: Any) -> None:
    assert make_exact(loads(dumps(document))) == make_exact(document)
    documents = [{"same": document, "other": document}, {"same": document, "other": [document]}]
    old, new = SnapshotCache(loads).parse_pair(*map(dumps, documents))
    assert make_exact([old, new]) == make_exact(documents)
    assert old["same"] is new["same"]


def test_snapshot_cache_forgets_texts_beyond_its_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SnapshotCache, "MAX_BYTES", 60)
    texts, alike = [dumps({"n": number, "same": [1]}) for number in range(9)], SnapshotCache(loads)
    first = alike.parse(texts[0])
    for before, after in pairwise(texts):
        old, new = alike.parse_pair(before, after)
        assert old["same"] is new["same"]
    assert alike.parse(texts[0]) is not first


def test_text_with_special_characters_is_read_and_written_unchanged() -> None:
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
        b"\xff",
        b'"\xff"',
        "[" * 100_000,
        "[" * 100_000 + "]" * 100_000,
        # next to a number that needs the slow way
        f'[{LONG}, "\\ud800"]',
        f"[{LONG}, NaN]",
        f"[{LONG}, 1E+99999999999999999999]",
        f"[{LONG}, ]",
        f"[{LONG}, " + "[" * 100_000 + "]" * 100_001,
    ],
    ids=lambda text: repr(text[:12]) + repr(text[-12:]),
)
def test_text_that_is_not_json_raises_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - json, msgspec and codecs each have their own
        loads(text)


DEPTHS = [
    MAX_PARSED_LEVELS - 1,
    MAX_PARSED_LEVELS,
    MAX_PARSED_LEVELS + 1,
    2 * MAX_PARSED_LEVELS + 1,
    900,
    6000,
]


def make_nested(levels: int, inside: str = "1") -> bytes:
    """Return `inside` nested in `levels` alternating lists and objects with two members each."""
    text = inside
    for level in range(levels):
        text = f'{{"a": {text}, "]}}\\"": 0.50}}' if level % 2 else f'[{text}, "{{["]'
    return text.encode()


@pytest.mark.parametrize("levels", DEPTHS)
def test_deep_document_is_read_and_written_unchanged(levels: int) -> None:
    text = make_nested(levels)
    assert is_deeper(text, levels - 1)
    assert not is_deeper(text, levels)
    assert is_deeper(text, MAX_PARSED_LEVELS) == (levels > MAX_PARSED_LEVELS)
    for read in (loads_shallow, SnapshotCache(loads_shallow).parse):
        assert dumps(read(text)).replace(b" ", b"") == text.replace(b" ", b"")


@pytest.mark.parametrize("levels", DEPTHS)
def test_innermost_value_of_deeply_nested_document_is_found_and_compared(levels: int) -> None:
    old, new = loads_shallow(make_nested(levels)), loads_shallow(make_nested(levels, "2"))
    path = "".join("/a" if level % 2 else "/0" for level in reversed(range(levels)))
    assert find_values(path, new) == [(path, 2)]
    assert find_values(f"{path}/x", new) == []
    assert is_different(path, old, new)
    assert is_touched(path, old, new)
    assert not is_different(path, new, loads_shallow(make_nested(levels, "2")))
    assert not is_touched('/]}"' if levels % 2 == 0 else "/1", old, new)
    comparison = compare_snapshots(old, new)
    assert len(comparison.changes) == 1
    assert comparison.changes[0].path == path[: len(comparison.changes[0].path)]
    assert dumps(comparison.changes)
    assert compare_snapshots(old, loads_shallow(make_nested(levels))).changes == ()


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
def test_number_in_a_different_notation_is_not_a_change_at_any_depth(
    levels: int, was: str, now: str, same: bool
) -> None:
    old, new = loads_shallow(make_nested(levels, was)), loads_shallow(make_nested(levels, now))
    comparison = compare_snapshots(old, new)
    assert (comparison.changes == ()) is same
    assert [operation["op"] for operation in comparison.patch] == ["replace"]
    blamed = {}
    blame = BlameWalk(new, DEFAULT_IDENTITY, blamed.__setitem__)
    blame.blame_version(old, "new")
    blame.blame_rest("old")
    assert set(blamed.values()) == ({"old"} if same else {"old", "new"})


@given(DOCUMENTS, st.integers(1, 4))
def test_document_is_read_unchanged_when_only_its_upper_levels_are_parsed_at_first(
    document: Any, deepest: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exactjson, "MAX_PARSED_LEVELS", deepest)
        cut = loads_shallow(dumps(document))
        assert dumps(cut) == dumps(document)
        assert make_exact(parse_whole(cut)) == make_exact(document)


def parse_whole(value: Any) -> Any:
    value = open_raw(value)
    if isinstance(value, dict):
        return {key: parse_whole(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [parse_whole(inner) for inner in value]
    return value


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), max_size=8), st.integers(0, 60))
def test_nesting_depth_is_measured_at_the_deepest_bracket(
    turns: list[tuple[int, int]], levels: int
) -> None:
    """The text is built from pairs (limit, up): close up to `limit` brackets, then open `up`."""
    text, now, deepest = "", 0, 0
    for limit, up in turns:
        down = min(limit, now)
        text += "]" * down + ("," if text and not text.endswith("[") else "") + "[" * up
        now += up - down
        deepest = max(deepest, now)
    assert is_deeper((text + "]" * now).encode(), levels) == (deepest > levels)


@pytest.mark.parametrize("levels", DEPTHS)
def test_deeply_nested_json_is_indented_only_up_to_a_limit(levels: int) -> None:
    text = make_nested(levels)
    indented_text = format_indented(text)
    assert len(indented_text) < 40 * MAX_PARSED_LEVELS**2 + 60 * levels
    assert indented_text.replace("\n", "").replace(" ", "") == text.decode().replace(" ", "")


@given(DOCUMENTS, st.integers(0, 4))
def test_indented_text_equals_output_of_the_json_module(document: Any, deepest: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        text = dumps(document)
        expected = json.loads(text)
        patch.setattr(exactjson, "MAX_PARSED_LEVELS", deepest)
        indented_text = format_indented(text)
        assert json.loads(indented_text) == expected
        assert "[\n]" not in indented_text


def test_deeply_nested_list_items_without_identity_fields_are_matched() -> None:
    def make_item(kind: str, value: int, levels: int = 90) -> Any:
        deep: Any = value
        for _ in range(levels):
            deep = {"x": deep}
        return {"kind": kind, "of": kind, "deep": deep}

    old, new = (
        [make_item("a", 1), make_item("b", 2)],
        [make_item("c", 5), make_item("a", 3), make_item("b", 4)],
    )

    def compare_in_deep_call(frames: int) -> list[str]:
        """Return the changes from `old` to `new`, computed after `frames` nested calls."""
        if frames:
            return compare_in_deep_call(frames - 1)
        blamed: dict[str, int] = {}
        walk: BlameWalk[int] = BlameWalk(new, DEFAULT_IDENTITY, blamed.__setitem__)
        walk.blame_version(old, 1)
        walk.blame_rest(0)
        assert [path for path, version in blamed.items() if version == 0] == [
            "/1/kind",
            "/1/of",
            "/2/kind",
            "/2/of",
        ]
        return [f"{change.kind} {change.path}" for change in compare_snapshots(old, new).changes]

    below = "/x" * 90
    assert compare_in_deep_call(300) == [
        "added /0",
        f"changed /1/deep{below}",
        f"changed /2/deep{below}",
    ]
