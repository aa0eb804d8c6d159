"""The history of an entity: versions in order, each compared with the one before.

The only reader of the *_aud tables; the API and the screens both stand on it.
"""

from history.timeline.pages import page
from history.timeline.query import (
    BadParameterError,
    Filters,
    Include,
    NotFoundError,
    NoVersionError,
    OlderThanRetentionError,
    Order,
    Query,
    Sort,
)
from history.timeline.single import Comparison, compare, version
from history.timeline.versions import LabelledChange, Older, Page, Version

__all__ = [
    "BadParameterError",
    "Comparison",
    "Filters",
    "Include",
    "LabelledChange",
    "NoVersionError",
    "NotFoundError",
    "Older",
    "OlderThanRetentionError",
    "Order",
    "Page",
    "Query",
    "Sort",
    "Version",
    "compare",
    "page",
    "version",
]
