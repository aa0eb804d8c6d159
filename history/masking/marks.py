"""Which parts of a document are marked: the paths of one kind of entity as a tree. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from history.diff.filter import Segment
from history.diff.path import unescape
from history.exactjson import Json

ANY = "*"  # any one segment
DEEP = "**"  # any number of segments, also none

# Gives the token of a marked value. mark: the path in the catalogue that marks it.
Replace = Callable[[str, Json], str]


@dataclass(slots=True)
class _Node:
    """A place in the tree. mark: the path that ends here; empty if none does. stays: this is a
    `**`, which a walk does not leave while it goes down."""

    mark: str = ""
    stays: bool = False
    below: dict[str, _Node] = field(default_factory=dict)


# The places that a walk has reached: several, because `*` and `**` fit in addition to a name.
_Places = tuple[_Node, ...]


class Marks:
    """The marked paths of one kind of entity: RFC 6901 pointers in which `*` stands for any one
    segment and `**` for any number of them. What is below a marked path is marked too."""

    def __init__(self, paths: Iterable[str]) -> None:
        root = _Node()
        for path in paths:
            node = root
            for segment in path.split("/")[1:]:
                name = unescape(segment)
                node = node.below.setdefault(name, _Node(stays=name == DEEP))
            node.mark = path
        self._root = _opened([root])

    def apply(self, document: Json, replace: Replace) -> Json:
        """The document with each marked part replaced as a whole; changes it in place.

        A part that is nested too deep to look into (a msgspec.Raw) is replaced as a whole if a
        marked path can lead into it.
        """
        return _masked(document, self._root, replace)

    def cover(self, steps: Sequence[Segment]) -> bool:
        """Whether a path leads into a marked part, at least one segment below the marked place."""
        places = self._root
        for step in steps:
            if any(place.mark for place in places):
                return True
            places = _below(places, step.text if step.kind == "key" else ANY)
        return False


def _masked(value: Json, places: _Places, replace: Replace) -> Json:
    if mark := _mark(places):
        return replace(mark, value)
    if type(value) is dict:
        for key in _candidates(value, places):
            if inside := _below(places, key):
                value[key] = _masked(value[key], inside, replace)
    elif type(value) is list:
        for index, item in enumerate(value):
            if inside := _below(places, str(index)):
                value[index] = _masked(item, inside, replace)
    elif isinstance(value, msgspec.Raw):
        return replace(DEEP, value)
    return value


def _mark(places: _Places) -> str:
    """The mark of the places; the first in the order of their text if there are several."""
    return min((place.mark for place in places if place.mark), default="")


def _candidates(value: dict[str, Json], places: _Places) -> list[str]:
    """The keys that a place can fit: a tree of plain names looks at these names only."""
    if any(place.stays or ANY in place.below for place in places):
        return list(value)
    names = dict.fromkeys(name for place in places for name in place.below)
    return [name for name in names if name in value]


def _below(places: _Places, name: str) -> _Places:
    """The places one segment further down; none if no mark can be there or below."""
    found: list[_Node] = []
    for place in places:
        if place.stays:
            found.append(place)
        found += [place.below[each] for each in {name, ANY} if each in place.below]
    return _opened(found)


def _opened(places: list[_Node]) -> _Places:
    """The places with the `**` below them, which may stand for no segment at all."""
    for place in places:  # grows while it is read
        deep = place.below.get(DEEP)
        if deep is not None and deep not in places:
            places.append(deep)
    return tuple(places)
