"""Compares two snapshots: changes for people, a patch for programs. Nothing else compares."""

from history.diff.change import MISSING, Change, Diff, Kind, Maybe, Operation
from history.diff.filter import (
    BadPath,
    PathFault,
    differs,
    find,
    matches,
    matching_first,
    parse,
    touches,
)
from history.diff.identity import DEFAULT, Identity
from history.diff.walk import changes, compare, patch

__all__ = [
    "DEFAULT",
    "MISSING",
    "BadPath",
    "Change",
    "Diff",
    "Identity",
    "Kind",
    "Maybe",
    "Operation",
    "PathFault",
    "changes",
    "compare",
    "differs",
    "find",
    "matches",
    "matching_first",
    "parse",
    "patch",
    "touches",
]
