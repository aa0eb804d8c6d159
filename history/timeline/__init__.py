"""The history of an entity: versions in order, each compared with the one before.

The only reader of the *_aud tables; the API and the screens use it.
"""

from history.timeline.applications import Application, MissingPart
from history.timeline.applications import at as application_at
from history.timeline.applications import timeline as application
from history.timeline.archived import ArchiveUnavailableError
from history.timeline.blame import Blamed, Leaf, Origin, blame
from history.timeline.field import FieldHistory, FieldValue, field
from history.timeline.pages import newest, page
from history.timeline.query import (
    Absence,
    ApplicationQuery,
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
from history.timeline.search import Carrier, Found, Results, documents, search, search_all
from history.timeline.single import (
    Comparison,
    MaskedValue,
    Twin,
    at,
    compare,
    masked_values,
    twins,
    unmask,
    version,
)
from history.timeline.sources.rows import Numbered, given_twice
from history.timeline.versions import LabelledChange, Page, Version

__all__ = [
    "Absence",
    "Application",
    "ApplicationQuery",
    "ArchiveUnavailableError",
    "BadParameterError",
    "Blamed",
    "Carrier",
    "Comparison",
    "FieldHistory",
    "FieldValue",
    "Filters",
    "Found",
    "Include",
    "LabelledChange",
    "Leaf",
    "MaskedValue",
    "MissingPart",
    "NoVersionError",
    "NotFoundError",
    "Numbered",
    "OlderThanRetentionError",
    "Order",
    "Origin",
    "Page",
    "Query",
    "Results",
    "Sort",
    "Twin",
    "Version",
    "application",
    "application_at",
    "at",
    "blame",
    "compare",
    "documents",
    "field",
    "given_twice",
    "masked_values",
    "newest",
    "page",
    "search",
    "search_all",
    "twins",
    "unmask",
    "version",
]
