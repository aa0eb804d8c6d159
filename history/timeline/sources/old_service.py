"""The old service as a source of versions. A request asks it for each timeline at most once."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from operator import attrgetter
from typing import TypeAlias

from history.common import deadline
from history.documents.exactjson import Json
from history.kinds.entities import ROOT, EntityKind, get_root
from history.store.versions import (
    EntityRef,
    SourceRow,
    TimelineSubject,
    VersionKey,
    parse_snapshot,
)
from history.timeline.query import FallbackState, is_storable_id
from history.timeline.sources.tables import TableSource

# Fetches the versions of a timeline within a number of seconds. Returns None if that fails.
FetchTimeline: TypeAlias = Callable[[TimelineSubject, float], list[SourceRow] | None]


class OldServiceSource:
    """The old service as a SupplementSource.

    If the tables and the old service both have a version with the same number, it is one version,
    even if the moments differ. The row of the tables is then used.
    """

    by_number = True

    def __init__(self, call: FetchTimeline | None = None, time_limit: float = 0.0) -> None:
        """Prepare to ask the old service.

        Args:
            call: Fetches a timeline. None if there is no old service, or if it must not be asked.
            time_limit: How many seconds all calls of this request together may take.
        """
        self._call = call
        self._seconds_left = time_limit
        self._answers: dict[TimelineSubject, list[SourceRow] | None] = {}  # None: the call failed
        self._shown: set[TimelineSubject] = set()  # the timelines that the HTTP answer shows
        self._omits_versions = False  # see `note_omitted_versions`
        # The versions in all answers, by document, then by number.
        self._versions: defaultdict[EntityRef, dict[int, SourceRow]] = defaultdict(dict)
        # The applications that a child names in the tables. Only children that were looked up.
        self._owners: dict[EntityRef, set[str]] = {}

    @property
    def is_available(self) -> bool:
        """Whether there is an old service that may be asked."""
        return self._call is not None

    @property
    def state(self) -> FallbackState | None:
        """Whether the HTTP answer of Annals has all versions that the old service has.

        None if the HTTP answer shows no timeline for which the old service was asked.
        """
        # A shown timeline has no answer if the deadline ended the HTTP request before the call.
        shown_answers = [self._answers[subject] for subject in self._shown & self._answers.keys()]
        if self._omits_versions or None in shown_answers:
            return FallbackState.FAILED
        return FallbackState.ANSWERED if shown_answers else None

    @property
    def failed(self) -> bool:
        """Whether the HTTP answer of Annals might lack versions that the old service has."""
        return self.state is FallbackState.FAILED

    def note_omitted_versions(self) -> None:
        """Record that the HTTP answer of Annals lacks versions of the old service.

        Call this if the reason is not a failed call to the old service.
        """
        self._omits_versions = True

    def load_shown_timeline(self, entity: EntityKind | None, id: str) -> bool:
        """Load a timeline from the old service.

        Call this for each timeline that the HTTP answer shows.

        Args:
            entity: The kind of the document. None for an application with its children.
            id: The id of the document or application.

        Returns:
            False if the old service failed; True if it answered, or if there is none.
        """
        if not self.is_available:
            return True
        application_subject = TimelineSubject(None, id)
        if (
            entity is not None
            and entity.root
            and self._answers.get(application_subject) is not None
        ):
            return True
        subject = TimelineSubject(entity, id)
        self._shown.add(subject)
        return self._ask(subject) is not None

    def _ask(self, subject: TimelineSubject) -> list[SourceRow] | None:
        """Return the versions of a timeline, or None if the old service failed.

        The old service is called once for each timeline. Its answer is kept for the whole request.
        """
        if subject not in self._answers:
            rows = self._answers[subject] = self._fetch(subject)
            for row in rows or ():
                self._versions[row.entity_ref].setdefault(row.version, row)
        return self._answers[subject]

    def _fetch(self, subject: TimelineSubject) -> list[SourceRow] | None:
        if self._call is None:
            return None
        # As a part of an address, "." and ".." would lead to another address.
        if not is_storable_id(subject.id) or subject.id in (".", ".."):
            return []
        has_failed = None in self._answers.values()
        if has_failed or (self._omits_versions and subject in self._shown):
            return None
        deadline.check()
        started_at = time.monotonic()
        rows = self._call(subject, self._seconds_left)
        self._seconds_left -= time.monotonic() - started_at
        return rows

    def get_by_number(self, entity: EntityKind, id: str) -> Mapping[int, SourceRow]:
        """Return the versions of a document in the loaded timelines, by number."""
        return self._versions.get(EntityRef(entity, id), {})

    def load_rows(self, entity: EntityKind, id: str) -> Mapping[VersionKey, SourceRow]:
        """Return the versions of a document by key.

        If the document is a child, each row has the id of the child's application. A version of a
        child without a known application is left out: the policy could not decide who may see it.
        """
        rows = list(self.get_by_number(entity, id).values())
        if entity.parent is None or all(row.product_instance_id for row in rows):
            return {row.key: row for row in rows}
        named_applications = {row.product_instance_id for row in rows if row.product_instance_id}
        entity_ref = EntityRef(entity, id)
        if entity_ref not in self._owners:
            self._owners[entity_ref] = TableSource().fetch_owners(entity, [id]).get(id, set())
        applications = named_applications | self._owners[entity_ref]
        owner = applications.pop() if len(applications) == 1 else None
        if owner is None:
            self.note_omitted_versions()
        owned_rows = [
            row._replace(product_instance_id=row.product_instance_id or owner) for row in rows
        ]
        return {row.key: row for row in owned_rows if row.product_instance_id}

    def list_members(self, application: str) -> Collection[EntityRef]:
        """Return the application and its children that are in the timelines loaded so far.

        A document is in these timelines if they have a version of it. A child is returned if any of
        these versions names the application.
        """
        return dict.fromkeys(
            row.entity_ref
            for rows in self._versions.values()
            for row in rows.values()
            if application == (row.id if row.entity.root else row.product_instance_id)
        )

    def may_hide_owners(self, entity: EntityKind, id: str) -> bool:
        """Return whether a document might belong to applications that its rows do not name.

        True if the old service has versions of the document, because the old service does not name
        the application in every version of a child.
        """
        return bool(self.get_by_number(entity, id))

    def find_other_moment(self, row: SourceRow) -> datetime | None:
        """Return the moment that the old service has for the version in `row`.

        Returns:
            None if the moment equals the moment in `row`, or if the old service does not have the
            version. Also None if the version is of a child and the child's application is unknown.
        """
        old_row = self.get_by_number(row.entity, row.id).get(row.version)
        if old_row is None or old_row.updated_at == row.updated_at:
            return None
        has_owner = old_row.entity.parent is None or old_row.product_instance_id
        is_shown = has_owner or old_row.key in self.load_rows(row.entity, row.id)
        return old_row.updated_at if is_shown else None

    def load_root_snapshots(self, applications: Collection[str]) -> dict[str, Json]:
        """Return the newest snapshot of each application, for the need-to-know rule.

        The old service is asked even if its versions are not shown. See need_to_know.LoadSnapshots.
        """
        if not self.is_available:
            return dict.fromkeys(applications)
        snapshots_by_id: dict[str, Json] = {}
        for id in sorted(applications):
            application_rows = self._answers.get(TimelineSubject(None, id))
            rows = application_rows or self._ask(TimelineSubject(get_root(), id))
            if rows is not None:
                with_snapshot = [row for row in rows if row.entity is ROOT and row.data != b"null"]
                newest = max(with_snapshot, key=attrgetter("version"), default=None)
                snapshots_by_id[id] = parse_snapshot(newest.data) if newest else None
        return snapshots_by_id
