"""Masks the marked paths of a snapshot. Begin with MarkedPaths.

The marked paths are a tree of nodes. A walk goes through a snapshot from the root down. Because of
`*` and `**`, the path of a value can match several nodes. The state of the walk is computed from
these nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import msgspec

from history.diff.path import unescape_segment
from history.diff.path_filter import PathSegment
from history.documents.exactjson import Json, Numeral

ANY_SEGMENT = "*"  # stands for any one segment
ANY_SEGMENTS = "**"  # stands for any number of segments, including zero

# The types of values that have no values inside.
_SCALAR_TYPES = frozenset((str, int, bool, Decimal, Numeral))
_SCALAR_OR_NULL_TYPES = _SCALAR_TYPES | {type(None)}

# Returns the token for a value. Arguments: the marked path, as in the catalogue, and the value.
ReplaceValue = Callable[[str, Json], str]


@dataclass(slots=True)
class _MarkNode:
    """A node in the tree of marked paths."""

    mark: str = ""  # the marked path that ends at this node, or empty
    inside: str = ""  # the alphabetically first path that continues below this node, or empty
    stays: bool = False  # whether this node is a `**`: a walk that goes down can stay on it
    # whether the path to this node has a name after its last `**`, so that it matches few values
    named: bool = False
    below: dict[str, _MarkNode] = field(default_factory=dict)  # by segment

    def get_or_add(self, name: str) -> _MarkNode:
        """Return the node for the segment `name` below this node. Add it if it does not exist."""
        has_name = name != ANY_SEGMENTS and (self.named or name != ANY_SEGMENT)
        return self.below.setdefault(name, _MarkNode(stays=name == ANY_SEGMENTS, named=has_name))

    @property
    def takes_lists(self) -> bool:
        """Whether this node can match a list: if an index, `*` or `**` follows in a marked path."""
        return any(name in (ANY_SEGMENT, ANY_SEGMENTS) or name.isdigit() for name in self.below)


@dataclass(slots=True)
class _WalkState:
    """The state of a walk through a snapshot at one value: how to mask the value and values below.

    The state is computed from all nodes in the tree of marked paths that match the path of the
    value.
    """

    mark: str  # the marked path that ends at this value, or empty
    # a marked path that continues below this value, or empty; if it is set, a text or number here
    # is masked
    value: str = ""
    # a marked path that continues below this value, but not into a list, or empty; if it is set, a
    # list here is masked
    items: str = ""
    # the state below each name that occurs in a marked path
    named: dict[str, _WalkState | None] = field(default_factory=dict)
    other: _WalkState | None = None  # the state below all other names

    def get_below(self, name: str) -> _WalkState | None:
        return self.named.get(name, self.other)


class MarkedPaths:
    """The marked paths in the snapshots of one kind.

    A path is an RFC 6901 pointer in which `*` stands for any one segment and `**` for any number
    of segments. Everything below a marked path is marked too.

    A name in a marked path leads into an object. An index, `*` or `**` leads into an object or a
    list. If a snapshot has a value of a different type instead, this value is masked as a whole,
    unless it is null: `/passport/series` also masks a passport that is a text or a list. In a path
    with `**`, this rule applies only below the first name after the `**`: `/**/passport/series`
    masks every passport that is a text, but no other text. Otherwise nearly every value would be
    masked.
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

    def mask_snapshot(self, snapshot: Json, replace: ReplaceValue) -> Json:
        """Replace each value of the snapshot that must be masked, and return the snapshot."""
        return snapshot if self._root is None else _mask_value(snapshot, self._root, replace)

    def is_below_mark(self, steps: Sequence[PathSegment]) -> bool:
        """Return whether a path leads below a marked field, and not only to the marked field.

        Also return True if the path leads into a list that is masked as a whole.
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
    """Return the state of a walk at one value of a snapshot, or None if `nodes` is empty.

    Args:
        nodes: The nodes that match the path of the value. The function appends each child `**` of a
            node in the list, because `**` can stand for zero segments.
        states: All states made so far, by the id() values of their nodes. New states are added.
    """
    for node in nodes:  # the list grows during the loop
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
    """Return the nodes that match after one more segment of the path, `name`."""
    below_nodes: list[_MarkNode] = []
    for node in nodes:
        if node.stays:
            below_nodes.append(node)
        below_nodes += [
            node.below[segment] for segment in {name, ANY_SEGMENT} if segment in node.below
        ]
    return below_nodes
