"""Pairs of snapshots that are hard to compare, at any size, for `python -m benchmarks diff`."""

from collections.abc import Callable
from random import Random
from typing import Any, Final

Pair = tuple[Any, Any]

ITEM_BYTES: Final = 120
_WORDS = ("rate", "amount", "status", "author", "comment", "term", "branch", "manager")


def _child(number: int, text: str = "") -> dict[str, Any]:
    return {
        "pid": f"{number:022d}",
        "name": f"Участник {number % 97}",
        "state": "NEW" if number % 3 else "DONE",
        "sum": f"{number * 37 % 100000}.00",
        "note": text,
    }


def _keyless(number: int, text: str = "") -> dict[str, Any]:
    return {
        "code": f"{number:022d}",
        **{k: v for k, v in _child(number, text).items() if k != "pid"},
    }


def _both(make: Callable[[Any], Any], old: Any, new: Any) -> Pair:
    return make(old), make(new)


def _shuffled(items: list[Any]) -> list[Any]:
    return Random(5).sample(items, len(items))


def _insert(count: int) -> Pair:
    items = [_child(n) for n in range(count)]
    return {"items": items}, {"items": [_child(-1), *items]}


def _removal(count: int) -> Pair:
    items = [_child(n) for n in range(count)]
    return {"items": items}, {"items": items[: count // 3] + items[count // 3 + 1 :]}


def _shuffle(count: int) -> Pair:
    items = [_child(n) for n in range(count)]
    return {"items": items}, {"items": _shuffled(items)}


def _every_item(count: int) -> Pair:
    return _both(lambda text: {"items": [_child(n, text) for n in range(count)]}, "a", "b")


def _other_items(count: int) -> Pair:
    return _both(lambda start: {"items": [_child(n + start) for n in range(count)]}, 0, 10**6)


def _shuffled_and_changed(count: int) -> Pair:
    old = [_child(n) for n in range(count)]
    return {"items": old}, {"items": _shuffled([_child(n, "x" * (n % 3)) for n in range(count)])}


def _keyless_insert(count: int) -> Pair:
    items = [_keyless(n) for n in range(count)]
    return {"items": items}, {"items": [_keyless(-1), *items]}


def _keyless_shuffle(count: int) -> Pair:
    items = [_keyless(n) for n in range(count)]
    return {"items": items}, {"items": _shuffled(items)}


def _keyless_rewrite(count: int) -> Pair:
    old = [_keyless(n) for n in range(count)]
    return {"items": old}, {"items": [_keyless(n, "x") for n in range(-1, count)]}


def _keyless_gaps(count: int) -> Pair:
    """Of every three items two are changed, and one is added after them."""
    old, new = [], []
    for number in range(count):
        old.append(_keyless(number))
        new.append(_keyless(number, "x" if number % 3 else ""))
        if number % 3 == 1:
            new.append(_keyless(number + 10**6))
    return {"items": old}, {"items": new}


def _words(count: int) -> Pair:
    words = [f"слово {n * 7919 % 10**6}" for n in range(count * 8)]
    return {"tags": words}, {"tags": _shuffled(words)}


def _few_words(count: int) -> Pair:
    return _both(lambda rng: {"tags": rng.choices(_WORDS, k=count * 12)}, Random(3), Random(4))


def _numbers(count: int) -> Pair:
    return _both(lambda factor: {"plan": [n * factor for n in range(count * 16)]}, 3, 5)


def _fields(count: int) -> Pair:
    return _both(lambda text: {f"field{n}": f"{text} {n}" for n in range(count * 4)}, "old", "new")


def _renamed_fields(count: int) -> Pair:
    return _both(lambda text: {f"{text}{n}": f"value {n}" for n in range(count * 4)}, "old", "new")


def _nested(count: int) -> Pair:
    """Objects nested 200 deep, which the interpreter can still read; the bytes are in wide
    fields."""
    depth = 200
    wide = "x" * (count * ITEM_BYTES // depth)

    def make(text: str) -> Any:
        inner: Any = {"value": text}
        for level in range(depth):
            inner = {"in": inner, f"field{level}": wide}
        return inner

    return _both(make, "a", "b")


def _text(count: int) -> Pair:
    return _both(lambda text: {"text": "ы" * (count * ITEM_BYTES // 2) + text}, "a", "b")


def _one_field(count: int) -> Pair:
    return _both(lambda rate: {"items": [_child(n) for n in range(count)], "rate": rate}, "a", "b")


# Each function returns a pair of about count * ITEM_BYTES bytes.
SHAPES: Final[dict[str, Callable[[int], Pair]]] = {
    "one field next to the list": _one_field,
    "list: insert at the front": _insert,
    "list: one removed": _removal,
    "list: shuffled": _shuffle,
    "list: shuffled, two thirds changed": _shuffled_and_changed,
    "list: every item changed": _every_item,
    "list: total rewrite": _other_items,
    "no keys: insert at the front": _keyless_insert,
    "no keys: shuffled": _keyless_shuffle,
    "no keys: all changed, one inserted": _keyless_rewrite,
    "no keys: two of three changed, one inserted": _keyless_gaps,
    "texts: shuffled": _words,
    "texts: eight words at random": _few_words,
    "numbers: rewritten": _numbers,
    "fields: rewritten": _fields,
    "fields: renamed": _renamed_fields,
    "nested 200 deep": _nested,
    "one long text": _text,
}
