"""Versions as the cards of a timeline page: who, when, and a row for each change."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby

from django.utils.translation import get_language, gettext_lazy, ngettext
from django.utils.translation import gettext as _

from history.admin.components import gaps, links
from history.admin.components.change_rows import ChangeRows, make_change_rows, order_changes
from history.admin.components.headline import (
    FieldTexts,
    NamedDocument,
    RenderBudget,
    find_shared_names,
)
from history.admin.components.links import MOST_ROWS, build_rows_url
from history.admin.components.values import ValueItem, make_items
from history.diff import ValueChange
from history.documents.record import ChangeType
from history.kinds.entities import EntityKind
from history.store.catalogue import labels
from history.timeline import Absence, Version, VersionNumberRef
from history.timeline.titles import get_headline

OPEN_ROWS = 12
CHANGE_TEXTS = {
    ChangeType.CREATE: gettext_lazy("created"),
    ChangeType.UPDATE: gettext_lazy("changed"),
    ChangeType.DELETE: gettext_lazy("deleted"),
}


@dataclass(frozen=True, slots=True)
class CardBuilder:
    """Builds the cards of a page.

    Attributes:
        maker_filter: Takes a version. Returns the address of the timeline with only the versions
            that the same person or service made.
        merged: Whether the page has versions of several documents.
        newest: The number and moment of the newest version. The cards of all other versions link to
            a comparison with it. None: the cards do not have this link.
        path: The path of the page's filter, or None.
        repeated_numbers: The version numbers that a producer used more than once, each with the
            moments of its versions.
        budget: How many values, letters and names the page can still show.
        titles: The titles of the page's applications by id. Empty if the page is about one
            application.
        unmask: Whether masked values link to the page that unmasks them.
        quarantine_notes: Sentences on messages in quarantine that have the number of a stored
            version. The key is the version's kind, id and number.
    """

    maker_filter: Callable[[Version], str]
    merged: bool = False
    newest: tuple[int, datetime] | None = None
    path: str | None = None
    repeated_numbers: Mapping[VersionNumberRef, Sequence[datetime]] = field(default_factory=dict)
    budget: RenderBudget = field(default_factory=RenderBudget)
    titles: Mapping[str, str] = field(default_factory=dict)
    unmask: bool = False
    quarantine_notes: Mapping[tuple[str, str, int], Sequence[str]] = field(default_factory=dict)

    def build_cards(self, versions: Sequence[Version]) -> list[dict[str, object]]:
        """Return a card for each version, in order.

        When the cards have MOST_ROWS rows in total, each further card has at most OPEN_ROWS rows.
        """
        cards: list[dict[str, object]] = []
        anchors: set[str] = set()
        rows_left = MOST_ROWS
        shared_names = find_shared_names(
            NamedDocument(version.entity.name, get_document_name(version), version.id)
            for version in versions
        )
        for version in versions:
            anchor = f"v{version.version}" + (f"-{version.id}" if self.merged else "")
            while anchor in anchors:
                anchor += "-"
            anchors.add(anchor)
            rows = self._make_rows(version, max(rows_left, OPEN_ROWS))
            rows_left -= len(rows.plain) + len(rows.technical)
            card = self._build_card(version, anchor, rows)
            if (version.entity.name, card.get("subject_name")) in shared_names:
                card["subject_id"] = version.id
            cards.append(card)
        return cards

    def _build_card(self, version: Version, anchor: str, rows: ChangeRows) -> dict[str, object]:
        """Return the variables for the template of a card.

        Returns:
            change_text, maker: What was done, and the name of the person or service that did it.
            is_maker_known: Whether the list of people has the person.
            rows, more_rows: The first OPEN_ROWS changes, and all later changes.
            technical_rows: The changes of technical fields.
            hidden, rest_url: How many changes have no row, and where they are shown.
            snapshot: The fields of the snapshot, if no previous version can be compared.
            gap, gap_links: Which versions between the previous one and this one are missing.
            note: Why there is no previous version, or an empty text.
            older_link: A link to the page of the missing version right before this one, or None.
            arrived_messages: Sentences on missing versions that arrived and are in quarantine.
            quarantine_notes: Sentences on other messages in quarantine with this version's number.
            subject, subject_name, subject_url: The document, if the page shows several.
        """
        entity, id, number = version.entity, version.id, version.version
        number_and_moment = number, version.updated_at
        other_moment = version.old_service_moment
        same_number_moments = self.repeated_numbers.get(VersionNumberRef(entity, id, number), ())
        card: dict[str, object] = {
            "version": version,
            "anchor": anchor,
            "kind": f"{version.type.name.lower()}d",  # created, updated, deleted
            "change_text": get_change_text(version.type),
            "maker": (version.author or version.service).name,
            "maker_url": self.maker_filter(version),
            "person_url": links.build_person_url(version.author.login) if version.author else "",
            "day_url": links.build_day_url(version),
            "service_url": links.build_day_url(version, by_service=True),
            "is_maker_known": version.author is None or version.author.kind != "unknown",
            "service": version.service.name if version.author else "",
            "count_text": _format_change_count(version),
            "rows": rows.plain[:OPEN_ROWS],
            "more_rows": rows.plain[OPEN_ROWS:],
            "technical_rows": rows.technical,
            "hidden": rows.note,
            "rest_url": _build_remaining_changes_url(version, rows, self.path),
            "snapshot": _make_snapshot_items(version, self.make_fields(version)),
            "note": explain_missing_previous(version),
            "arrived_messages": gaps.describe_arrived(version),
            "quarantine_notes": self.quarantine_notes.get((entity.name, id, number), ()),
            "gap": gaps.explain_missing(version),
            "gap_links": gaps.link_missing_versions(version),
            "older_link": gaps.link_older_version(version),
            "own_url": links.build_snapshot_url(entity, id, *number_and_moment),
            "raw_url": links.build_json_url(entity, id, *number_and_moment),
            "same_number_url": _build_same_number_url(version, same_number_moments),
        }
        if other_moment:
            card["other_url"] = links.build_snapshot_url(entity, id, number, other_moment)
        if self.titles:
            application = version.product_instance_id or id
            card["application"] = self.titles.get(application) or application
            card["application_url"] = links.build_application_url(application)
        if self.merged:
            card["subject"] = get_kind_title(entity)
            if entity.parent:
                card["subject_name"] = get_document_name(version)
                card["subject_url"] = links.build_timeline_url(entity, id)
        elif self.newest is not None and self.newest != number_and_moment:
            card["compare_url"] = links.build_comparison_url(
                entity, id, number_and_moment, self.newest
            )
        return card

    def _make_rows(self, version: Version, max_rows: int) -> ChangeRows:
        entity, id = version.entity, version.id

        def link(change: ValueChange) -> str:
            return links.build_field_url(entity, id, change.key_path)

        changes = order_changes(version.changes, self.path)
        return make_change_rows(changes, version.data, self.make_fields(version), link, max_rows)

    def make_fields(self, version: Version) -> FieldTexts:
        """Return the names with which the page shows the fields of a version.

        If `self.unmask` is true, the result can also build the address that unmasks a value of the
        version.
        """
        entity, id, number, moment = version.entity, version.id, version.version, version.updated_at
        field_names = make_field_names(entity, self.budget)
        if self.unmask:
            return replace(
                field_names,
                unmask=lambda path: links.build_unmask_url(entity, id, number, path, moment),
            )
        return field_names


def group_cards(cards: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    """Group consecutive cards, in order.

    Returns:
        For each group its `cards` and `quiet`. The page folds a quiet group: two or more cards of
        versions that changed nothing or only technical fields.
    """
    groups: list[dict[str, object]] = []
    for quiet, group in groupby(cards, key=_is_quiet):
        group_cards_ = list(group)
        groups.append({"quiet": quiet and len(group_cards_) > 1, "cards": group_cards_})
    return groups


def _is_quiet(card: Mapping[str, object]) -> bool:
    shown_keys = (
        "rows",
        "snapshot",
        "hidden",
        "note",
        "gap",
        "gap_links",
        "arrived_messages",
        "same_number_url",
        "quarantine_notes",
    )
    return card["kind"] == "updated" and not any(card[key] for key in shown_keys)


def make_field_names(entity: EntityKind, budget: RenderBudget | None = None) -> FieldTexts:
    """Return the names of a kind's fields in the language of the page.

    `budget` is shared by everything that the page draws. None: a new budget.
    """
    return FieldTexts(
        labels.get_catalogue(), entity.name, (get_language() or "ru")[:2], budget or RenderBudget()
    )


def get_kind_title(entity: EntityKind) -> str:
    """Return the title of a kind in the language of the page."""
    return entity.title_ru if (get_language() or "ru").startswith("ru") else entity.title


def get_change_text(kind: ChangeType) -> str:
    return str(CHANGE_TEXTS[kind])


def get_document_name(version: Version) -> str:
    """Return the headline of a version's document.

    If a deletion has no snapshot, the headline is from the snapshot before it.
    """
    old = version.changes[0].change.old if version.changes else None
    return get_headline(version.data) or get_headline(old)


def _format_change_count(version: Version) -> str:
    if version.previous_version is None:
        return ""
    if not version.changes:
        return _("nothing changed")
    plain = sum(not change.technical for change in version.changes)
    if not plain and version.type is ChangeType.DELETE:
        return ""
    if not plain:
        return _("only technical fields")
    return ngettext("{n} change", "{n} changes", plain).format(n=plain)


def _make_snapshot_items(version: Version, fields: FieldTexts) -> Sequence[ValueItem]:
    if version.previous_version is None and isinstance(version.data, dict):
        return make_items(version.data, fields, "", 1)
    return ()


def _build_same_number_url(version: Version, times: Sequence[datetime]) -> str:
    """Return the address that compares two versions of a document that have the same number.

    `version` is compared with the latest version of this number, or with the earliest if `version`
    is the latest. Returns "" if only one version has the number.

    Args:
        times: The moments of all versions with this number, earliest first.
    """
    if not times:
        return ""
    number, moment = version.version, version.updated_at
    older = times[0] if moment == times[-1] else moment
    return links.build_comparison_url(
        version.entity, version.id, (number, older), (number, times[-1])
    )


def _build_remaining_changes_url(version: Version, rows: ChangeRows, path: str | None) -> str:
    """Return the address of the page that shows the changes for which the card has no row.

    That page compares the version with its previous one. It begins with the first change that the
    card does not show.

    Returns:
        The address. Empty if the card shows every change, or if there is no previous version.
    """
    number, moment = version.previous_version, version.previous_updated_at
    if not rows.hidden or number is None or moment is None:
        return ""
    new_version = version.version, version.updated_at
    address = links.build_comparison_url(
        version.entity, version.id, (number, moment), new_version, path
    )
    return build_rows_url(address, len(rows.plain) + len(rows.technical))


def explain_missing_previous(version: Version) -> str:
    """Return a sentence on why a version has no previous version.

    Empty if it has one, or if it is the first version of its document.
    """
    if version.nothing_older_reason is Absence.ARCHIVED:
        return _("Older versions are in the archive. {ask}").format(ask=gaps.get_archive_hint())
    if version.nothing_older_reason is Absence.REMOVED:
        return _("Older versions were removed: they are past the days that are kept.")
    if version.quarantined and version.nothing_older_reason:
        return _("Older versions are not all in the store.")
    if version.nothing_older_reason is Absence.NEVER_ARRIVED:
        return _("Older versions never arrived.")
    if version.nothing_older_reason is Absence.UNKNOWN:
        return _("Older versions are not in the store: removed by age, or never arrived.")
    return ""
