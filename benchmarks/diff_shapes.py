"""Makes pairs of snapshots of any size that are hard to compare, for the benchmark `diff`."""

from collections.abc import Callable
from random import Random
from typing import Any, Final

SnapshotPair = tuple[Any, Any]

ITEM_BYTES: Final = 120
_WORDS = ("rate", "amount", "status", "author", "comment", "term", "branch", "manager")


def _make_item(number: int, text: str = "") -> dict[str, Any]:
    return {
        "pid": f"{number:022d}",
        "name": f"Участник {number % 97}",
        "state": "NEW" if number % 3 else "DONE",
        "sum": f"{number * 37 % 100000}.00",
        "note": text,
    }


def _make_keyless_item(number: int, text: str = "") -> dict[str, Any]:
    return {
        "code": f"{number:022d}",
        **{k: v for k, v in _make_item(number, text).items() if k != "pid"},
    }


def _make_pair(make: Callable[[Any], Any], old: Any, new: Any) -> SnapshotPair:
    return make(old), make(new)


def _shuffle_items(items: list[Any]) -> list[Any]:
    return Random(5).sample(items, len(items))


def _insert_first(count: int) -> SnapshotPair:
    items = [_make_item(n) for n in range(count)]
    return {"items": items}, {"items": [_make_item(-1), *items]}


def _remove_one(count: int) -> SnapshotPair:
    items = [_make_item(n) for n in range(count)]
    return {"items": items}, {"items": items[: count // 3] + items[count // 3 + 1 :]}


def _shuffle_list(count: int) -> SnapshotPair:
    items = [_make_item(n) for n in range(count)]
    return {"items": items}, {"items": _shuffle_items(items)}


def _change_every_item(count: int) -> SnapshotPair:
    return _make_pair(lambda text: {"items": [_make_item(n, text) for n in range(count)]}, "a", "b")


def _replace_all_items(count: int) -> SnapshotPair:
    return _make_pair(
        lambda start: {"items": [_make_item(n + start) for n in range(count)]}, 0, 10**6
    )


def _shuffle_and_change(count: int) -> SnapshotPair:
    old = [_make_item(n) for n in range(count)]
    return {"items": old}, {
        "items": _shuffle_items([_make_item(n, "x" * (n % 3)) for n in range(count)])
    }


def _insert_keyless(count: int) -> SnapshotPair:
    items = [_make_keyless_item(n) for n in range(count)]
    return {"items": items}, {"items": [_make_keyless_item(-1), *items]}


def _shuffle_keyless(count: int) -> SnapshotPair:
    items = [_make_keyless_item(n) for n in range(count)]
    return {"items": items}, {"items": _shuffle_items(items)}


def _rewrite_keyless(count: int) -> SnapshotPair:
    old = [_make_keyless_item(n) for n in range(count)]
    return {"items": old}, {"items": [_make_keyless_item(n, "x") for n in range(-1, count)]}


def _change_and_insert_keyless(count: int) -> SnapshotPair:
    """Make a pair of snapshots with a list of items without keys.

    Of every three consecutive items, the first stays the same, and the second and the third change.
    A new item is inserted between the second and the third.
    """
    old, new = [], []
    for number in range(count):
        old.append(_make_keyless_item(number))
        new.append(_make_keyless_item(number, "x" if number % 3 else ""))
        if number % 3 == 1:
            new.append(_make_keyless_item(number + 10**6))
    return {"items": old}, {"items": new}


def _shuffle_texts(count: int) -> SnapshotPair:
    words = [f"слово {n * 7919 % 10**6}" for n in range(count * 8)]
    return {"tags": words}, {"tags": _shuffle_items(words)}


def _choose_few_texts(count: int) -> SnapshotPair:
    return _make_pair(lambda rng: {"tags": rng.choices(_WORDS, k=count * 12)}, Random(3), Random(4))


def _rewrite_numbers(count: int) -> SnapshotPair:
    return _make_pair(lambda factor: {"plan": [n * factor for n in range(count * 16)]}, 3, 5)


def _rewrite_fields(count: int) -> SnapshotPair:
    return _make_pair(
        lambda text: {f"field{n}": f"{text} {n}" for n in range(count * 4)}, "old", "new"
    )


def _rename_fields(count: int) -> SnapshotPair:
    return _make_pair(
        lambda text: {f"{text}{n}": f"value {n}" for n in range(count * 4)}, "old", "new"
    )


def _change_nested(count: int) -> SnapshotPair:
    """Make a pair of snapshots in which a value inside 200 nested objects changes.

    A long field in each object makes the snapshots large. Python's json module can parse this
    depth.
    """
    depth = 200
    wide = "x" * (count * ITEM_BYTES // depth)

    def make_nested(text: str) -> Any:
        inner: Any = {"value": text}
        for level in range(depth):
            inner = {"in": inner, f"field{level}": wide}
        return inner

    return _make_pair(make_nested, "a", "b")


def _change_long_text(count: int) -> SnapshotPair:
    return _make_pair(lambda text: {"text": "ы" * (count * ITEM_BYTES // 2) + text}, "a", "b")


def _change_one_field(count: int) -> SnapshotPair:
    return _make_pair(
        lambda rate: {"items": [_make_item(n) for n in range(count)], "rate": rate}, "a", "b"
    )


# The functions that make pairs of snapshots, by name. A snapshot has about count * ITEM_BYTES
# bytes.
SHAPES: Final[dict[str, Callable[[int], SnapshotPair]]] = {
    "one field next to the list": _change_one_field,
    "list: insert at the front": _insert_first,
    "list: one removed": _remove_one,
    "list: shuffled": _shuffle_list,
    "list: shuffled, two thirds changed": _shuffle_and_change,
    "list: every item changed": _change_every_item,
    "list: total rewrite": _replace_all_items,
    "no keys: insert at the front": _insert_keyless,
    "no keys: shuffled": _shuffle_keyless,
    "no keys: all changed, one inserted": _rewrite_keyless,
    "no keys: two of three changed, one inserted": _change_and_insert_keyless,
    "texts: shuffled": _shuffle_texts,
    "texts: eight words at random": _choose_few_texts,
    "numbers: rewritten": _rewrite_numbers,
    "fields: rewritten": _rewrite_fields,
    "fields: renamed": _rename_fields,
    "nested 200 deep": _change_nested,
    "one long text": _change_long_text,
}
