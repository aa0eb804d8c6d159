"""Which parts of a document are marked: the paths of one kind of entity as a tree. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import msgspec

from history.diff.filter import Segment
from history.diff.path import unescape
from history.documents.exactjson import Json, Numeral

ANY = "*"  # any one segment
DEEP = "**"  # any number of segments, also none

# Nothing is below these.
_VALUES = frozenset((str, int, bool, Decimal, Numeral))
_PLAIN = _VALUES | {type(None)}

# Gives the token of a marked value. mark: the path in the catalogue that marks it.
Replace = Callable[[str, Json], str]


@dataclass(slots=True)
class _Node:
    """A place in the tree of the marked paths. mark: the path that ends here; empty if none does.
    inside: the first path that goes on from here, in the order of their text. stays: this is a
    `**`, which a walk does not leave while it goes down. named: a name is on the way from the last
    `**`, so that only a few values of a document can be here."""

    mark: str = ""
    inside: str = ""
    stays: bool = False
    named: bool = False
    below: dict[str, _Node] = field(default_factory=dict)

    def step(self, name: str) -> _Node:
        """The place below, made if it is not there."""
        named = name != DEEP and (self.named or name != ANY)
        return self.below.setdefault(name, _Node(stays=name == DEEP, named=named))

    @property
    def takes_lists(self) -> bool:
        return any(name in (ANY, DEEP) or name.isdigit() for name in self.below)


@dataclass(slots=True)
class _State:
    """Where a walk over a document is: all the places of the tree that fit. mark: of a marked
    place. value, items: the mark by which a plain value, or a list, is masked here as a whole,
    because a marked path goes on; or empty. named: the state below, by names that matter; other:
    below every other name. None: nothing is marked there."""

    mark: str
    value: str = ""
    items: str = ""
    named: dict[str, _State | None] = field(default_factory=dict)
    other: _State | None = None

    def below(self, name: str) -> _State | None:
        return self.named.get(name, self.other)


class Marks:
    """The marked paths of one kind of entity, with all below them: RFC 6901 pointers in which `*`
    stands for any one segment and `**` for any number of them.

    A value on the way to a marked path that has not the form which the path expects is masked
    whole: `/passport/series` masks a passport that is a text or a list. Only behind a name, though.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        root = _Node()
        for path in paths:
            node = root
            for segment in path.split("/")[1:]:
                node.inside = min(node.inside or path, path)
                node = node.step(unescape(segment))
            node.mark = path
        self._root = _state([root], {})

    def apply(self, document: Json, replace: Replace) -> Json:
        """The document with each marked part replaced as a whole, in place."""
        return document if self._root is None else _masked(document, self._root, replace)

    def cover(self, steps: Sequence[Segment]) -> bool:
        """Whether a path leads into a marked part, at least one segment below the marked place."""
        state = self._root
        for step in steps:
            if state is None or state.mark:
                break
            item = step.kind == "item" or (step.kind == "key" and step.text.isdigit())
            if item and state.items:
                return True
            state = state.below(step.text) if step.kind == "key" else state.other
        else:
            return False
        return state is not None


def _masked(value: Json, state: _State, replace: Replace) -> Json:
    if state.mark:
        return replace(state.mark, value)
    if type(value) is dict:
        _mask_names(value, state, replace)
    elif type(value) is list:
        if state.items:
            return replace(state.items, value)
        for index, inner in enumerate(value):
            inside = state.below(str(index)) if state.named else state.other
            if inside is not None:
                value[index] = _masked(inner, inside, replace)
    elif isinstance(value, msgspec.Raw):
        return replace(DEEP, value)
    elif state.value and type(value) in _VALUES:
        return replace(state.value, value)
    return value


def _mask_names(value: dict[str, Json], state: _State, replace: Replace) -> None:
    if state.other is None:
        for name, inside in state.named.items():
            if inside is not None and name in value:
                value[name] = _masked(value[name], inside, replace)
        return
    for name, inner in value.items():
        inside = state.below(name)
        if inside is not None and (inside.mark or inside.value or type(inner) not in _PLAIN):
            value[name] = _masked(inner, inside, replace)


def _state(places: list[_Node], known: dict[frozenset[int], _State]) -> _State | None:
    """The state of these places; None for no place. known: the states made so far."""
    for place in places:  # grows while it is read: `**` may stand for no segment at all
        deep = place.below.get(DEEP)
        if deep is not None and deep not in places:
            places.append(deep)
    if not places:
        return None
    key = frozenset(map(id, places))
    if key in known:
        return known[key]
    on_the_way = [place for place in places if place.named and place.below]
    state = known[key] = _State(
        mark=min((place.mark for place in places if place.mark), default=""),
        value=min((place.inside for place in on_the_way), default=""),
        items=min((place.inside for place in on_the_way if not place.takes_lists), default=""),
    )
    names = {name for place in places for name in place.below} - {ANY, DEEP}
    state.other = _state(_below(places, ANY), known)
    state.named = {name: _state(_below(places, name), known) for name in sorted(names)}
    return state


def _below(places: list[_Node], name: str) -> list[_Node]:
    """The places one segment further down."""
    found: list[_Node] = []
    for place in places:
        if place.stays:
            found.append(place)
        found += [place.below[each] for each in {name, ANY} if each in place.below]
    return found
