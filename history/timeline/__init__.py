"""The history of an entity: versions in order, each compared with the one before.

The API and the screens read versions through this package only.
"""

from history.timeline.applications import ApplicationState, MissingPart, before_gaps
from history.timeline.applications import at as application_at
from history.timeline.blame import BlamedLeaf, blame
from history.timeline.compose import LabelledChange, Origin, Version
from history.timeline.field import FieldValue, field
from history.timeline.pages import Page, application, newest, page
from history.timeline.query import (
    Absence,
    ApplicationQuery,
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
from history.timeline.reading import Reader
from history.timeline.row import Numbered
from history.timeline.search import (
    Carrier,
    Found,
    Results,
    documents,
    search,
    search_all,
    visible,
)
from history.timeline.single import (
    Comparison,
    Twin,
    at,
    compare,
    differences,
    given_twice,
    twins,
    version,
)
from history.timeline.unmask import masked_values, unmask
