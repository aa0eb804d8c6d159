"""Need-to-know beyond roles: which applications the present reader may see, asked of one rule."""

from history.need_to_know.reader import (
    NeedToKnowError,
    QuotaError,
    applies,
    may_see,
    opens,
    permit,
    read_by,
)
from history.need_to_know.rule import Application, Rule

__all__ = [
    "Application",
    "NeedToKnowError",
    "QuotaError",
    "Rule",
    "applies",
    "may_see",
    "opens",
    "permit",
    "read_by",
]
