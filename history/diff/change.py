"""The classes that represent the changes between two snapshots."""

from typing import Any, Literal, TypeAlias

import msgspec

from history.documents.exactjson import Json

# Stands for a value that is absent, not null. msgspec omits such fields of a ValueChange.
MISSING = msgspec.UNSET
MaybeJson: TypeAlias = "Json | msgspec.UnsetType"

ChangeKind = Literal["added", "removed", "changed", "moved"]
Operation = dict[str, Any]


class ValueChange(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One change between two snapshots, as a person sees it.

    A change inside a moved item is a separate ValueChange. Do not modify the values: they are
    parts of the snapshots.
    """

    path: str  # RFC 6901 pointer into the new snapshot; for "removed", into the old one
    key_path: str  # the path with list items named by their key, see docs/diff.md
    kind: ChangeKind
    old: MaybeJson = MISSING  # MISSING for "added"
    new: MaybeJson = MISSING  # MISSING for "removed"
    from_index: int | msgspec.UnsetType = MISSING  # for "moved"
    to_index: int | msgspec.UnsetType = MISSING  # for "moved"


class Diff(msgspec.Struct, frozen=True):
    """The result of comparing two snapshots: changes for people, and a JSON patch for programs."""

    # in document order of the new snapshot, with removed values at their old position; empty if
    # the snapshots are equal as JSON
    changes: tuple[ValueChange, ...]
    patch: list[Operation]  # RFC 6902; the result is exact to the digit
