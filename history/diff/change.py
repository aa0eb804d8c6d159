"""The types of a difference between two snapshots."""

from typing import Any, Literal, TypeAlias

import msgspec

from history.documents.exactjson import Json

# The value is absent, which is not null. msgspec omits such fields when it encodes a ValueChange.
MISSING = msgspec.UNSET
MaybeJson: TypeAlias = "Json | msgspec.UnsetType"

ChangeKind = Literal["added", "removed", "changed", "moved"]
Operation = dict[str, Any]


class ValueChange(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One difference as a person sees it. `path`: an RFC 6901 pointer into the new snapshot; for
    "removed", into the old one. `key_path`: with list items named by their key, see docs/diff.md.
    `old` is MISSING for "added", `new` for "removed". "moved" items have both indexes; a change
    inside the item is another one. Do not modify the values, which are the snapshots' own."""

    path: str
    key_path: str
    kind: ChangeKind
    old: MaybeJson = MISSING
    new: MaybeJson = MISSING
    from_index: int | msgspec.UnsetType = MISSING
    to_index: int | msgspec.UnsetType = MISSING


class Diff(msgspec.Struct, frozen=True):
    """Both results of one comparison. `changes`: in document order of the new snapshot, a removed
    value at its old position; empty if equal as JSON. `patch`: RFC 6902, exact to the digit."""

    changes: tuple[ValueChange, ...]
    patch: list[Operation]
