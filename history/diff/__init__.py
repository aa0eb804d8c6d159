"""Compares two snapshots: changes for people, a patch for programs.

All comparisons of Annals are made here.
Begin with `compare_snapshots` in `walk.py`; `align.py` matches the items of lists for it.
"""

from history.diff.change import MISSING, ChangeKind, Diff, MaybeJson, Operation, ValueChange
from history.diff.identity import DEFAULT_IDENTITY, ListIdentity
from history.diff.path_filter import (
    BadPathError,
    PathFault,
    find_values,
    is_different,
    is_matching,
    is_touched,
    order_matching_first,
    parse_path,
)
from history.diff.walk import compare_snapshots, list_changes, make_patch

__all__ = [
    "DEFAULT_IDENTITY",
    "MISSING",
    "BadPathError",
    "ChangeKind",
    "Diff",
    "ListIdentity",
    "MaybeJson",
    "Operation",
    "PathFault",
    "ValueChange",
    "compare_snapshots",
    "find_values",
    "is_different",
    "is_matching",
    "is_touched",
    "list_changes",
    "make_patch",
    "order_matching_first",
    "parse_path",
]
