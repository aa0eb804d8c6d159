"""Need-to-know beyond roles: which applications the present reader may see, asked of one rule."""

from history.need_to_know.reader import (
    REASON,
    NeedToKnowError,
    RuleFailedError,
    Unknown,
    applies,
    may_see,
    permit,
    read_by,
    undecided,
)
from history.need_to_know.rule import Application, Rule

__all__ = [
    "REASON",
    "Application",
    "NeedToKnowError",
    "Rule",
    "RuleFailedError",
    "Unknown",
    "applies",
    "may_see",
    "permit",
    "read_by",
    "undecided",
]
