"""The one place where two snapshots are compared."""

from history.diff.change import MISSING, Change, Diff, Kind, Maybe, Operation
from history.diff.filter import BadPath, find, matches, parse
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
    "changes",
    "compare",
    "find",
    "matches",
    "parse",
    "patch",
]
