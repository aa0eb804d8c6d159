"""The history of an entity: versions in order, each compared with the one before.

The API and the screens read versions through this package only.
"""

from history.timeline.applications import ApplicationState, MissingPart
from history.timeline.applications import at as application_at
from history.timeline.applications import timeline as application
from history.timeline.blame import BlamedLeaf, blame
from history.timeline.compare import Comparison, compare, differences
from history.timeline.compose import Origin
from history.timeline.field import FieldValue, field
from history.timeline.hits import Carrier, Found
from history.timeline.pages import newest, page
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
from history.timeline.reading import Reader
from history.timeline.row import Numbered
from history.timeline.search import Results, documents, search, search_all
from history.timeline.single import Twin, at, given_twice, twins, version
from history.timeline.unmask import masked_values, unmask
from history.timeline.versions import LabelledChange, Page, Version
