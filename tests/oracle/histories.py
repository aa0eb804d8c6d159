"""Random histories of an application and its children.

They have clock skew, repeated numbers, missing versions, deletions, children that move to another
application, and snapshots with unusual keys and lists.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import strategies as st

from history.documents.jsonb import to_store
from history.documents.record import Record
from tests.db.store import T0
from tests.oracle.reference import KINDS, ROOT
from tests.oracle.values import ExactNumber, Value

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
APPLICATIONS = ("A1", "A2")
AUTHORS = (None, "anna", "boris")
CLIENTS = ("top-crm", "top-scoring")
# Microseconds after the first moment. Some differ by one microsecond, some are on other days.
SLOTS = (0, 1, 60_000_000, 60_000_001, 86_400_000_000, 86_400_000_001, 200_000_000_000)
MOMENTS = tuple(T0 + timedelta(microseconds=slot) for slot in SLOTS)


@dataclass(frozen=True)
class GeneratedVersion:
    """A version to store."""

    kind: str
    id: str
    version: int
    moment: datetime
    type: int  # 0, 1 or 2
    author: str | None
    client: str
    application: str | None
    text: str  # the snapshot as JSON text


def encode(value: Value) -> str:
    if isinstance(value, ExactNumber):
        return value.text
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{encode(v)}" for key, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(encode, value)) + "]"
    return json.dumps(value)


NUMBERS = st.sampled_from(
    [
        "0",
        "1",
        "-1",
        "7",
        "1.0",
        "1.00",
        "0.000001",
        "0.000000",
        "1e2",
        "1E-7",
        "-0.5",
        "12345678901234567890.10",
    ]
).map(ExactNumber)
SCALARS = st.one_of(
    st.sampled_from(["a", "b", "a", "b", "", "ё🏠", "1", "\0", None, True, False]), NUMBERS
)
ODD_KEYS = (
    "",
    " ",
    "*",
    "[pid=a]",
    "[",
    "a/b",
    "~",
    "~1",
    "~4",
    "0",
    "1",
    "=",
    "ё",
    "\ufffd",
    "\0",
)
NAMES = st.sampled_from(["a", "b", "c", "d", "d/e=~]", ExactNumber("7"), "7", "", True, None])
IDS = st.sampled_from([ExactNumber("1"), ExactNumber("2"), "1", "x"])


def _draw_items(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    return st.fixed_dictionaries(
        {"s": SCALARS}, optional={"pid": NAMES, "id": IDS, "in": inner, "0": SCALARS}
    )


def _draw_keyed_lists(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    """Draw lists in which each item is identified by one key, as in most real lists."""
    item = st.fixed_dictionaries({"s": SCALARS}, optional={"in": inner, "id": IDS})
    names = st.lists(st.sampled_from("abcdef"), unique=True, max_size=4)
    return names.flatmap(
        lambda names: st.tuples(*[item.map(lambda i, n=name: {"pid": n, **i}) for name in names])
    ).map(list)


def _nest_deeply(value: Value) -> Value:
    """Nest a value so deeply that a comparison does not reach it."""
    for level in range(120):
        value = {"x": value} if level % 3 else [value]
    return value


_FLAT = st.one_of(
    SCALARS, st.lists(SCALARS, max_size=3), st.dictionaries(st.sampled_from("xy"), SCALARS)
)
_LISTS = st.one_of(_draw_keyed_lists(_FLAT), st.lists(_draw_items(_FLAT) | SCALARS, max_size=4))
VALUES = st.one_of(
    SCALARS,
    _LISTS,
    _draw_keyed_lists(_LISTS),
    st.lists(SCALARS, max_size=5),
    st.lists(st.sampled_from("abc"), max_size=6),
    st.dictionaries(st.sampled_from(("x", "y", *ODD_KEYS)), SCALARS | _LISTS, max_size=3),
)
# Values of business keys. Some are also ids, and some cannot be found by search.
KEY_VALUES = st.sampled_from(
    [*["77"] * 6, "A1", "C1", ExactNumber("77"), " 77", "", "x" * 101, "7\0", True, None]
)
DOCUMENTS = st.fixed_dictionaries(
    {"docs": _LISTS, **dict.fromkeys(("clientId", "realtyCrmId"), KEY_VALUES)},
    optional={
        **dict.fromkeys(("rate", "nested"), VALUES),
        **dict.fromkeys(("number", "submissionId"), KEY_VALUES),
        "encumbrance": st.fixed_dictionaries({"submissionId": KEY_VALUES}),
        "deep": SCALARS.map(_nest_deeply),
        **dict.fromkeys(ODD_KEYS, SCALARS),
    },
)


@st.composite
def edit_value(draw: st.DrawFn, value: Value, levels: int = 6) -> Value:
    """Draw a copy of the value with some parts replaced, removed, added or reordered."""
    if not levels:
        return value
    if isinstance(value, dict):
        members = {key: draw(edit_value(inner, levels - 1)) for key, inner in value.items()}
        if members and draw(st.integers(0, 5)) == 0:
            del members[draw(st.sampled_from(sorted(members)))]
        if draw(st.integers(0, 7)) == 0:
            members[draw(st.sampled_from(("x", "pid", "id", "rate", *ODD_KEYS)))] = draw(SCALARS)
        return members
    if isinstance(value, list):
        items = [draw(edit_value(item, levels - 1)) for item in value]
        roll = draw(st.integers(0, 9))
        if roll == 0:
            return draw(st.permutations(items))
        if roll == 1 and items:
            items.pop(draw(st.integers(0, len(items) - 1)))
        if roll in (2, 3):
            items.insert(draw(st.integers(0, len(items))), draw(_draw_items(SCALARS) | SCALARS))
        return items
    return draw(SCALARS) if draw(st.integers(0, 5)) == 0 else value


@st.composite
def generate_versions(draw: st.DrawFn, kind: str, id: str, maximum: int) -> list[GeneratedVersion]:
    """Draw the versions of one document, in the order of their numbers."""
    slots = st.integers(0, len(MOMENTS) - 1)
    numbered_slots = st.tuples(st.integers(0, 7), slots)
    pairs = sorted(draw(st.lists(numbered_slots, min_size=1, max_size=maximum, unique=True)))
    if draw(st.booleans()):  # without clock skew: moments grow with the numbers
        in_order = sorted(slot for _, slot in pairs)
        pairs = sorted({(n, slot) for (n, _), slot in zip(pairs, in_order, strict=True)})
    document = draw(DOCUMENTS)
    versions = []
    for version, slot in pairs:
        type = draw(st.sampled_from([1, 1, 1, 1, 0, 2])) if version else 0
        text = "null" if type == 2 and draw(st.booleans()) else encode(document)
        versions.append(
            GeneratedVersion(
                kind=kind,
                id=id,
                version=version,
                moment=MOMENTS[slot],
                type=type,
                author=draw(st.sampled_from(AUTHORS)),
                client=draw(st.sampled_from(CLIENTS)),
                application=None
                if kind == ROOT
                else draw(st.sampled_from(["A1", "A1", "A1", "A2"])),
                text=text,
            )
        )
        document = draw(edit_value(document))
    return versions


@st.composite
def generate_histories(draw: st.DrawFn) -> list[GeneratedVersion]:
    """Draw all versions of a few documents. Documents of different kinds can have the same id."""
    history = draw(generate_versions(ROOT, "A1", 9)) if draw(st.integers(0, 3)) else []
    if draw(st.integers(0, 3)) == 0:
        history += draw(generate_versions(ROOT, "A2", 3))
    children = st.tuples(st.sampled_from(KINDS[1:4]), st.sampled_from(["C1", "C2", "A1"]))
    count = draw(st.integers(0 if history else 2, 3))
    for kind, id in sorted(draw(st.sets(children, min_size=count, max_size=count))):
        history += draw(generate_versions(kind, id, 4))
    return history


@st.composite
def generate_batches(
    draw: st.DrawFn, history: list[GeneratedVersion]
) -> list[list[GeneratedVersion]]:
    """Draw batches of the versions, of any size and in any order. Some versions come twice."""
    again = draw(st.lists(st.sampled_from(history), max_size=4))
    order = draw(st.permutations([*history, *again])) if draw(st.booleans()) else [*history, *again]
    cuts = draw(st.lists(st.integers(1, len(order)), max_size=3))
    edges = sorted({0, *cuts, len(order)})
    return [order[first:end] for first, end in pairwise(edges)]


def make_record(version: GeneratedVersion) -> Record:
    """Make the record that ingest stores for a version."""
    return Record(
        entity=version.kind,
        id=version.id,
        version=version.version,
        type=version.type,
        updated_at=(version.moment - EPOCH) // timedelta(microseconds=1),
        client_id=version.client,
        author=version.author,
        product_instance_id=version.application,
        data=to_store(version.text.encode()),
    )
