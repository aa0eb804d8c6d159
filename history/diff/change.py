"""What a difference between two snapshots looks like to everybody outside this package."""

from typing import Any, Literal, TypeAlias

import msgspec

from history.exactjson import Json

# Absent, as opposed to null; msgspec leaves such fields out when it encodes a Change.
MISSING = msgspec.UNSET
Maybe: TypeAlias = "Json | msgspec.UnsetType"

Kind = Literal["added", "removed", "changed", "moved"]
Operation = dict[str, Any]


class Change(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One difference as a person sees it.

    `path` is an RFC 6901 pointer into the new snapshot, for "removed" into the old one.
    `key_path` is the same place with list items named by their identity key, see docs/diff.md;
    what holds a removed value stands in it by its new index where it has no key.
    `old` is MISSING for "added", `new` for "removed". "moved" is for list items only: it has both
    indexes, and the item as it was and as it is; what changed inside it are changes of their own.
    The values are the snapshots' own objects: not to be modified.
    """

    path: str
    key_path: str
    kind: Kind
    old: Maybe = MISSING
    new: Maybe = MISSING
    from_index: int | msgspec.UnsetType = MISSING
    to_index: int | msgspec.UnsetType = MISSING


class Diff(msgspec.Struct, frozen=True):
    """Both views of one comparison.

    `changes` in document order of the new snapshot, removals where they stood; empty when the
    snapshots are equal as JSON. `patch` is RFC 6902 and exact to the digit: it may replace 1.0
    with 1.00, which is no change.
    """

    changes: tuple[Change, ...]
    patch: list[Operation]
