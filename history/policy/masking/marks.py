"""The marked paths of an entity kind as a tree, and the walk that masks a document. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import msgspec

from history.diff.path import unescape_segment
from history.diff.path_filter import PathSegment
from history.documents.exactjson import Json, Numeral

ANY_SEGMENT = "*"  # any one segment
ANY_SEGMENTS = "**"  # any number of segments, also none

# Nothing is below these.
_SCALAR_TYPES = frozenset((str, int, bool, Decimal, Numeral))
_SCALAR_OR_NULL_TYPES = _SCALAR_TYPES | {type(None)}

# Gives the token of a marked value. mark: the path in the catalogue that marks it.
ReplaceValue = Callable[[str, Json], str]


@dataclass(slots=True)
class _MarkNode:
    """A node in the tree of marked paths."""

    mark: str = ""  # the path that ends here, or empty
    inside: str = ""  # the first path that goes on from here, by its text, or empty
    stays: bool = False  # this is a `**`, which a walk does not leave while it goes down
    # a name is on the way from the last `**`: so only a few values of a document can be here
    named: bool = False
    below: dict[str, _MarkNode] = field(default_factory=dict)

    def get_or_add(self, name: str) -> _MarkNode:
        """Return the node below, and make it if it is not there."""
        has_name = name != ANY_SEGMENTS and (self.named or name != ANY_SEGMENT)
        return self.below.setdefault(name, _MarkNode(stays=name == ANY_SEGMENTS, named=has_name))

    @property
    def takes_lists(self) -> bool:
        return any(name in (ANY_SEGMENT, ANY_SEGMENTS) or name.isdigit() for name in self.below)


@dataclass(slots=True)
class _WalkState:
    """The state of a walk over a document: the nodes of the tree that fit."""

    mark: str  # of a marked place, or empty
    value: str = ""  # the mark by which a plain value is masked here, because a path goes on
    items: str = ""  # the mark by which a list is masked here, because a path goes on
    # the states below, by names that matter
    named: dict[str, _WalkState | None] = field(default_factory=dict)
    other: _WalkState | None = None  # the state below every other name

    def get_below(self, name: str) -> _WalkState | None:
        return self.named.get(name, self.other)


class MarkedPaths:
    """The marked paths of one kind of entity, with all below them: RFC 6901 pointers in which `*`
    stands for any one segment and `**` for any number of them.

    A value on the way to a marked path that has not the form which the path expects is masked
    whole: `/passport/series` masks a passport that is a text or a list. Only behind a name, though.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        root = _MarkNode()
        for path in paths:
            node = root
            for segment in path.split("/")[1:]:
                node.inside = min(node.inside or path, path)
                node = node.get_or_add(unescape_segment(segment))
            node.mark = path
        self._root = _make_state([root], {})

    def mask_document(self, document: Json, replace: ReplaceValue) -> Json:
        """Mask each marked part of the document as a whole, in place."""
        return document if self._root is None else _mask_value(document, self._root, replace)

    def cover(self, steps: Sequence[PathSegment]) -> bool:
        """Return whether a path leads into a marked part, at least one segment below the marked
        place.
        """
        state = self._root
        for step in steps:
            if state is None or state.mark:
                break
            item = step.kind == "item" or (step.kind == "key" and step.text.isdigit())
            if item and state.items:
                return True
            state = state.get_below(step.text) if step.kind == "key" else state.other
        else:
            return False
        return state is not None


def _mask_value(value: Json, state: _WalkState, replace: ReplaceValue) -> Json:
    if state.mark:
        return replace(state.mark, value)
    if type(value) is dict:
        _mask_names(value, state, replace)
    elif type(value) is list:
        if state.items:
            return replace(state.items, value)
        for index, inner in enumerate(value):
            inside = state.get_below(str(index)) if state.named else state.other
            if inside is not None:
                value[index] = _mask_value(inner, inside, replace)
    elif isinstance(value, msgspec.Raw):
        return replace(ANY_SEGMENTS, value)
    elif state.value and type(value) in _SCALAR_TYPES:
        return replace(state.value, value)
    return value


def _mask_names(value: dict[str, Json], state: _WalkState, replace: ReplaceValue) -> None:
    if state.other is None:
        for name, inside in state.named.items():
            if inside is not None and name in value:
                value[name] = _mask_value(value[name], inside, replace)
        return
    for name, inner in value.items():
        inside = state.get_below(name)
        if inside is not None and (
            inside.mark or inside.value or type(inner) not in _SCALAR_OR_NULL_TYPES
        ):
            value[name] = _mask_value(inner, inside, replace)


def _make_state(
    nodes: list[_MarkNode], states: dict[frozenset[int], _WalkState]
) -> _WalkState | None:
    """Return the state of these nodes; None if there is no node. `states` has those that were made
    so far.
    """
    for node in nodes:  # grows while it is read: `**` may stand for no segment at all
        deep = node.below.get(ANY_SEGMENTS)
        if deep is not None and deep not in nodes:
            nodes.append(deep)
    if not nodes:
        return None
    key = frozenset(map(id, nodes))
    if key in states:
        return states[key]
    on_the_way = [node for node in nodes if node.named and node.below]
    state = states[key] = _WalkState(
        mark=min((node.mark for node in nodes if node.mark), default=""),
        value=min((node.inside for node in on_the_way), default=""),
        items=min((node.inside for node in on_the_way if not node.takes_lists), default=""),
    )
    names = {name for node in nodes for name in node.below} - {ANY_SEGMENT, ANY_SEGMENTS}
    state.other = _make_state(_list_below(nodes, ANY_SEGMENT), states)
    state.named = {name: _make_state(_list_below(nodes, name), states) for name in sorted(names)}
    return state


def _list_below(nodes: list[_MarkNode], name: str) -> list[_MarkNode]:
    """Return the nodes one segment further down."""
    below_nodes: list[_MarkNode] = []
    for node in nodes:
        if node.stays:
            below_nodes.append(node)
        below_nodes += [
            node.below[segment] for segment in {name, ANY_SEGMENT} if segment in node.below
        ]
    return below_nodes
