"""The policy of one request: which rows and facts the viewer may see, and which values are masked.

Every answer of a source passes through the policy before Annals computes anything from it. The
policy asks the need-to-know rule. It records for the access journal which applications were read,
and it masks snapshots.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from history.kinds.entities import BY_NAME, EntityKind
from history.policy import need_to_know
from history.policy.masking.mask import get_viewer_mask
from history.policy.masking.viewer import Viewer
from history.policy.need_to_know import LoadSnapshots
from history.store.quarantined_messages import MessagePosition, QuarantinedMessage
from history.store.versions import Content, EntityRef, SourceAnswer, SourceRow, VersionRow

# Returns, for each id of this kind, the applications that the document's stored versions name.
FetchOwners: TypeAlias = Callable[[EntityKind, Collection[str]], Mapping[str, Collection[str]]]


@dataclass(frozen=True, slots=True)
class ViewerPolicy:
    """The policy of one request: it decides which content of the sources the viewer may see.

    A document may be seen if the need-to-know rule allows all applications that it belongs to.
    """

    viewer: Viewer
    fetch_owners: FetchOwners  # finds the applications of a document
    load_snapshots: LoadSnapshots  # loads the snapshots by which the rule decides

    def release(self, answer: SourceAnswer[Content]) -> Content:
        """Return the content of a source's answer, if the viewer may know of each document in it.

        Rows in the content must still pass through `apply`.

        Raises:
            NeedToKnowError, RuleFailedError: See need_to_know.check_permitted.
            DamagedBlockError: The source could not read a block. Raised only if the viewer may
                know that the document exists.
        """
        if need_to_know.is_rule_applied(self.viewer):
            if answer.revealed_applications:
                self.check_permitted(answer.revealed_applications)
            if answer.revealed_documents:
                self.check_visible(*answer.revealed_documents)
        if isinstance(answer.unreleased, Exception):
            raise answer.unreleased
        return answer.unreleased

    def apply(self, rows: Iterable[SourceRow]) -> list[VersionRow]:
        """Return the rows with masks applied, grouped by kind, if the viewer may see all of them.

        Raises:
            NeedToKnowError, RuleFailedError: See need_to_know.check_permitted.
        """
        rows_by_kind: defaultdict[EntityKind, list[SourceRow]] = defaultdict(list)
        for row in rows:
            rows_by_kind[row.entity].append(row)
        return [
            row
            for entity, kind_rows in rows_by_kind.items()
            for row in self._apply_to_kind(entity, kind_rows)
        ]

    def _apply_to_kind(self, entity: EntityKind, rows: list[SourceRow]) -> list[VersionRow]:
        if not entity.is_standalone:
            applications = dict.fromkeys(row.application for row in rows)
            self.viewer.access.note_read(applications)
            self.check_permitted(applications)
        mask = get_viewer_mask(self.viewer, entity)
        if mask is None:
            return [VersionRow._make(row) for row in rows]
        return [VersionRow._make(row._replace(data=mask(row.id, row.data))) for row in rows]

    def check_permitted(self, applications: Iterable[str]) -> None:
        """Check that the viewer may see these applications.

        Raises:
            NeedToKnowError, RuleFailedError: See need_to_know.check_permitted.
        """
        need_to_know.check_permitted(self.viewer, applications, self.load_snapshots)

    def check_visible(self, *entity_refs: EntityRef) -> set[str]:
        """Return the applications of these documents, if the viewer may see all of them.

        Call it also for an answer without rows: an empty list or a count reveals something about a
        document too.

        Raises:
            NeedToKnowError, RuleFailedError: See need_to_know.check_permitted.
        """
        ids: defaultdict[EntityKind, list[str]] = defaultdict(list)
        for entity, id in entity_refs:
            ids[entity].append(id)
        owners_by_kind = (
            self.fetch_owners(entity, kind_ids).values() for entity, kind_ids in ids.items()
        )
        applications = {
            application for owners in chain.from_iterable(owners_by_kind) for application in owners
        }
        self.check_permitted(applications)
        return applications

    def select_visible(self, applications: Collection[str]) -> set[str]:
        """Return the applications that the viewer may see. See need_to_know.select_visible."""
        return self._select_visible(applications, self.load_snapshots)

    def _select_visible(
        self, applications: Collection[str], load_snapshots: LoadSnapshots
    ) -> set[str]:
        allowed = need_to_know.select_visible(self.viewer, applications, load_snapshots)
        self.viewer.access.note_left_out(sorted(set(applications) - allowed))
        return allowed

    # The methods below decide about facts that reveal something of a document without its rows.

    def select_tellable(self, messages: Collection[QuarantinedMessage]) -> list[QuarantinedMessage]:
        """Return the messages in quarantine that the viewer may know about.

        The viewer must be allowed to see the application in the message, and all applications in
        the stored versions of the message's document. A message for which Annals knows no
        application is left out, because the need-to-know rule cannot decide about it.
        """
        if not messages or not need_to_know.is_rule_applied(self.viewer):
            return list(messages)
        owners = self._find_owners(messages)
        visible_applications = self._select_with_snapshot(set().union(*owners.values()))
        tellable = [
            message
            for message in messages
            if BY_NAME[message.entity].is_standalone
            or (owners[message.position] and owners[message.position] <= visible_applications)
        ]
        self.viewer.access.note_read(
            dict.fromkeys(id for message in tellable for id in owners[message.position])
        )
        return tellable

    def _find_owners(
        self, messages: Collection[QuarantinedMessage]
    ) -> dict[MessagePosition, set[str]]:
        """Return the applications in each message and in the stored versions of its document."""
        ids: defaultdict[EntityKind, set[str]] = defaultdict(set)
        for message in messages:
            if (entity := BY_NAME[message.entity]).parent is not None:
                ids[entity].add(message.id)
        owners = {
            (entity.name, id): set(applications)
            for entity, children in ids.items()
            for id, applications in self.fetch_owners(entity, children).items()
        }
        return {
            message.position: {message.id}
            if BY_NAME[message.entity].root
            else owners.get((message.entity, message.id), set()) | ({message.application} - {""})
            for message in messages
        }

    def _select_with_snapshot(self, applications: set[str]) -> set[str]:
        """Return the subset of `applications` that the viewer may see.

        The need-to-know rule decides by the snapshot of the application. An application without a
        snapshot is left out, unless the rule has allowed the application earlier in this request.
        """
        unknown = applications - self.viewer.decided.keys()
        snapshots = self.load_snapshots(unknown) if unknown else {}
        with_snapshot = {id for id, snapshot in snapshots.items() if snapshot is not None}
        candidates = (applications - unknown) | with_snapshot
        return self._select_visible(candidates, lambda _: snapshots)

    def may_tell_of_archive(self, entity: EntityKind) -> bool:
        """Return whether the viewer may be told that the archive might have versions of this kind.

        The archive's list of days does not name applications, so the need-to-know rule cannot
        decide about it. A viewer whom the rule limits is not told.
        """
        return entity.is_standalone or not need_to_know.is_rule_applied(self.viewer)
