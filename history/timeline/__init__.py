"""The history of an entity: versions in order, each compared with the one before.

The API and the screens read versions through this package only.
"""

from history.timeline.compose import LabelledChange, Origin, Version
from history.timeline.gate import OpenQuestion, Reader
from history.timeline.pages import Page, newest, page
from history.timeline.query import (
    Absence,
    ArchiveUnavailableError,
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
from history.timeline.readers import of_request, on_host
from history.timeline.search import (
    Found,
    Results,
    documents,
    held_of,
    open_messages,
    search,
    search_all,
    visible,
    without_document,
)
from history.timeline.states import (
    ApplicationState,
    Comparison,
    MissingPart,
    application_at,
    at,
    compare,
    differences,
    given_twice,
    masked_values,
    open_at,
    unmask,
    version,
)
from history.timeline.values import BlamedLeaf, FieldValue, blame, field
from history.versions import Numbered
