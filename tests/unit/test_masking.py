"""Which values of a snapshot are masked, and what a mask token reveals."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from history.diff import parse_path
from history.documents.exactjson import Numeral, dumps, loads, loads_shallow
from history.policy.masking import is_token, shorten_token
from history.policy.masking.marks import MarkedPaths
from history.policy.masking.mask import KindMask, derive_document_key, make_token


def mask_document(paths: list[str], document: object) -> Any:
    return MarkedPaths(paths).mask_snapshot(
        loads(json.dumps(document)), lambda mark, _: f"<{mark}>"
    )


@pytest.mark.parametrize(
    ("paths", "document", "expected"),
    [
        (["/a"], {"a": 1, "b": 2}, {"a": "</a>", "b": 2}),
        (["/a"], {"a": None}, {"a": "</a>"}),
        # A value of another form than the path expects is masked as a whole.
        (["/a/b"], {"a": "text"}, {"a": "</a/b>"}),
        (["/a/b"], {"a": None, "c": "text"}, {"a": None, "c": "text"}),
        (["/a/b"], {"a": [{"b": 1}]}, {"a": "</a/b>"}),
        (["/a/*/n"], {"a": ["x", {"n": 1}]}, {"a": ["</a/*/n>", {"n": "</a/*/n>"}]}),
        (["/a/*/n"], {"a": [[{"n": 1}]]}, {"a": ["</a/*/n>"]}),
        (["/a/*/n"], {"a": {"n": "x"}}, {"a": {"n": "</a/*/n>"}}),
        (["/**/a/b"], {"c": [{"a": "x", "b": "y"}]}, {"c": [{"a": "</**/a/b>", "b": "y"}]}),
        (["/a/**/n"], {"a": {"b": "x", "n": 1}}, {"a": {"b": "x", "n": "</a/**/n>"}}),
        # A path without a name before its wildcard does not mask plain values.
        (["/*/n", "/**/m"], {"a": "x", "b": ["y"]}, {"a": "x", "b": ["y"]}),
        (["/a/*/n"], {"a": {"x": {"n": 1}}}, {"a": {"x": {"n": "</a/*/n>"}}}),
        (["/a/1"], {"a": [7, 8]}, {"a": [7, "</a/1>"]}),
        (
            ["/**/n"],
            {"n": 1, "a": [{"b": {"n": 2}}], "c": 3},
            {"n": "</**/n>", "a": [{"b": {"n": "</**/n>"}}], "c": 3},
        ),
        (
            ["/a/**/n"],
            {"n": 1, "a": {"n": 2, "b": {"n": 3}}},
            {"n": 1, "a": {"n": "</a/**/n>", "b": {"n": "</a/**/n>"}}},
        ),
        (["/a~1b/~0"], {"a/b": {"~": 1}}, {"a/b": {"~": "</a~1b/~0>"}}),
        (["/b", "/a", "/*"], {"a": 1, "b": 2}, {"a": "</*>", "b": "</*>"}),
        (["/*"], {"**": 1, "*": 2}, {"**": "</*>", "*": "</*>"}),
    ],
)
def test_marked_values_of_a_document_are_masked(
    paths: list[str], document: object, expected: object
) -> None:
    assert mask_document(paths, document) == expected


def test_deeply_nested_value_is_masked_whole_when_a_marked_field_may_be_inside() -> None:
    text = b'{"a":' + b"[" * 150 + b'{"n":"canary"}' + b"]" * 150 + b',"z":1}'
    assert b"canary" not in KindMask("k", ("/**/n",))("A", text)
    assert KindMask("k", ("/z",))("A", text).replace(b'"a"', b"").count(b"canary") == 1


def test_document_with_number_too_large_for_python_is_masked_whole() -> None:
    text = b'{"a": 1e999999999999999999999, "n": "canary"}'
    assert is_token(loads(KindMask("k", ("/n",))("A", text)))


names = st.sampled_from(["a", "b", "c"])


@given(way=st.lists(st.one_of(names, st.just("*")), max_size=4), data=st.data())
def test_value_that_is_not_an_object_is_masked_where_a_marked_path_expects_an_object(
    way: list[str], data: st.DataObject
) -> None:
    path = ["person", *way, "secret"]
    depth = data.draw(st.integers(1, len(path)), "how far the document follows the path")
    forms: list[Any] = ["canary", 4509112233, '{"secret":"canary"}']
    if path[depth:] and path[depth] != "*":
        forms += [[["canary"]], [{path[depth]: "canary"}]]
    document: Any = data.draw(st.sampled_from(forms))
    for name in reversed(path[:depth]):
        if name == "*" and data.draw(st.booleans(), "a list"):
            document = [document]
        else:
            document = {data.draw(names) if name == "*" else name: document}
    text = json.dumps(mask_document(["/" + "/".join(path)], document))
    assert "canary" not in text
    assert "4509112233" not in text


@pytest.mark.parametrize(
    "path", ["/p/number", "/p/*", "/list/[pid=x]/n/deep", "/list/0/n/1", "/q/r/0/s", "/q/r/[a=b]"]
)
def test_is_below_mark_returns_true_for_path_that_leads_deeper_than_a_marked_path(
    path: str,
) -> None:
    """This includes a path into a list where the marked path expects an object."""
    assert MarkedPaths(["/p", "/list/*/n", "/q/r/t"]).is_below_mark(parse_path(path))


@pytest.mark.parametrize("path", ["/p", "", "/*", "/list/[n=x]", "/list/0/n", "/q/number", "/*/n"])
def test_is_below_mark_returns_false_for_a_marked_path_or_a_path_outside_marked_fields(
    path: str,
) -> None:
    assert not MarkedPaths(["/p", "/list/*/n"]).is_below_mark(parse_path(path))


def make_value_token(value: object, id: str = "A", mark: str = "/a", entity: str = "k") -> str:
    return make_token(derive_document_key(entity, id), mark, value)  # type: ignore[arg-type]


def test_mask_tokens_are_equal_only_for_equal_values_of_one_field_and_one_document() -> None:
    first = make_value_token("+7 900 000-00-00")
    assert first == make_value_token("+7 900 000-00-00")
    other_tokens = [
        make_value_token("+7 900 000-00-01"),
        make_value_token("+7 900 000-00-00", id="B"),
        make_value_token("+7 900 000-00-00", mark="/b"),
        make_value_token("+7 900 000-00-00", entity="l"),
    ]
    assert len({first, *other_tokens}) == 5


@pytest.mark.parametrize(
    "equal",
    [
        ["1", "1.0", "1.00", "10e-1", "0.1e1", "1e0"],
        ["0", "-0.0", "0.00", "0e7"],
        ["-12.50", "-12.5"],
        ["12345678901234567890123456789012345.10", "12345678901234567890123456789012345.1"],
        ['{"a":1,"b":[2]}', '{"b":[2.0],"a":1}'],
    ],
)
def test_equal_numbers_have_the_same_mask_token(equal: list[str]) -> None:
    assert len({make_value_token(loads(text)) for text in equal}) == 1


def test_values_that_differ_as_json_have_different_mask_tokens() -> None:
    texts = ["1", '"1"', "true", "null", "[]", "{}", '""', "[1]", '"null"', "1.01", "-1", "0"]
    texts += ["false", '[["a"],"b"]', '["a","b"]', '"1e0"']
    texts += [f"12345678901234567890123456789012345.{digit}" for digit in "12"]
    assert len({make_value_token(loads(text)) for text in texts}) == len(texts)


@pytest.mark.parametrize("value", [None, True, 1, "", "x" * 10_000, [], {"a": [1]}, Numeral("1e2")])
def test_all_mask_tokens_have_the_same_length(value: object) -> None:
    assert len(make_value_token(value)) == len(make_value_token("x"))
    assert is_token(make_value_token(value))


def test_screens_shorten_masked_values_and_leave_other_texts_unchanged() -> None:
    value_token = make_value_token("x")
    assert shorten_token(value_token) == f"•••• {value_token[7:13]}"
    assert shorten_token("masked:3f2a") == "masked:3f2a"
    assert dumps(loads_shallow(dumps({"a": value_token}))) == dumps({"a": value_token})
