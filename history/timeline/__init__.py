"""Timelines: the versions of documents in order, each compared with its previous version.

The API and the screens read versions through this package only. Begin with `fetch_page` in
`pages.py`: it fetches rows from the sources of `reader.py`. The policy checks that the viewer may
see the rows, and masks them. `version_index.py` pairs each version with its previous version, and
`compose.py` compares the two.
"""

from history.store.versions import VersionNumberRef
from history.timeline.absence import may_be_archived
from history.timeline.changes import ChangesPage, ChangesQuery, fetch_changes_page
from history.timeline.compose import LabelledChange, ValueOrigin, Version
from history.timeline.moments import (
    ApplicationState,
    MissingPart,
    VersionComparison,
    compare_snapshots,
    compare_versions,
    fetch_application_at,
    fetch_version,
    fetch_version_at,
    find_masked_values,
    find_repeated_numbers,
    select_open_at,
    unmask_value,
)
from history.timeline.open_messages import (
    OpenMessagesQuestion,
    fetch_messages_for,
    find_quarantined,
    find_resolved,
    select_open_messages,
)
from history.timeline.pages import TimelinePage, fetch_newest_version, fetch_page
from history.timeline.person_activity import PersonActivity, fetch_person_activity
from history.timeline.query import (
    Absence,
    ArchiveUnavailableError,
    BadParameterError,
    Include,
    NotFoundError,
    NoVersionError,
    OlderThanRetentionError,
    TimelineOrder,
    TimelineQuery,
    TimelineSort,
    VersionFilters,
)
from history.timeline.reader import HistoryReader, make_host_reader, make_request_reader
from history.timeline.search import (
    SearchPage,
    SearchResult,
    fetch_newest_snapshots,
    fetch_open_messages,
    find_without_snapshot,
    search,
    search_all,
    select_messages_about,
    select_visible,
)
from history.timeline.values import BlamedLeaf, FieldValue, blame_leaves, fetch_field_history
from history.timeline.version_index import fetch_all_versions, fetch_keys, fetch_members
