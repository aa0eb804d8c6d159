"""Versions as the cards of a timeline page: who, when, and a row for each change."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby

from django.utils.translation import get_language, gettext_lazy, ngettext
from django.utils.translation import gettext as _

from history import labels
from history.admin.parts import gaps, links
from history.admin.parts.change_rows import ChangeRows, change_rows, ordered
from history.admin.parts.headline import Fields, Room, headline, shared
from history.admin.parts.links import MOST_ROWS, after
from history.admin.parts.values import Item, members
from history.diff import Change
from history.entities import Entity
from history.record import ChangeType
from history.timeline import Absence, Numbered, Version

OPEN_ROWS = 12
WHAT = {
    ChangeType.CREATE: gettext_lazy("created"),
    ChangeType.UPDATE: gettext_lazy("changed"),
    ChangeType.DELETE: gettext_lazy("deleted"),
}


@dataclass(frozen=True, slots=True)
class CardBuilder:
    """Makes the cards of a page. maker_filter: gives the address of the timeline with only the
    versions of who made one. merged: several entities on one page. newest: number and time of the
    version that each card offers to compare with. path: of the filter that is used. twice: the
    numbers that were given twice. titles: of the applications of the page by id, where there are
    several. unmask: whether masked values are links to where they are shown. held: sentences on
    other messages with the number of a version, by kind, id and number."""

    maker_filter: Callable[[Version], str]
    merged: bool = False
    newest: tuple[int, datetime] | None = None
    path: str | None = None
    twice: Mapping[Numbered, Sequence[datetime]] = field(default_factory=dict)
    room: Room = field(default_factory=Room)
    titles: Mapping[str, str] = field(default_factory=dict)
    unmask: bool = False
    held: Mapping[tuple[str, str, int], Sequence[str]] = field(default_factory=dict)

    def build(self, versions: Sequence[Version]) -> list[dict[str, object]]:
        """The cards, in order: MOST_ROWS rows in all, OPEN_ROWS in each."""
        found: list[dict[str, object]] = []
        anchors: set[str] = set()
        left = MOST_ROWS
        same = shared((one.entity.name, name(one), one.id) for one in versions)
        for version in versions:
            anchor = f"v{version.version}" + (f"-{version.id}" if self.merged else "")
            while anchor in anchors:
                anchor += "-"
            anchors.add(anchor)
            rows = self._rows(version, max(left, OPEN_ROWS))
            left -= len(rows.plain) + len(rows.technical)
            card = self._card(version, anchor, rows)
            if (version.entity.name, card.get("subject_name")) in same:
                card["subject_id"] = version.id
            found.append(card)
        return found

    def _card(self, version: Version, anchor: str, rows: ChangeRows) -> dict[str, object]:
        """rows: the first OPEN_ROWS changes; more_rows: the others; technical_rows: those of
        technical fields; hidden, rest_url: of changes without a row. snapshot: only where there is
        no version to compare with. gap, note, gap_links, older_link: which older versions are
        missing; came: what is known of those that came."""
        entity, id, number = version.entity, version.id, version.version
        here = number, version.updated_at
        other = version.other_moment
        card: dict[str, object] = {
            "version": version,
            "anchor": anchor,
            "kind": f"{version.type.name.lower()}d",  # created, updated, deleted
            "what": kind_text(version.type),
            "who": (version.author or version.service).name,
            "who_url": self.maker_filter(version),
            "known": version.author is None or version.author.kind != "unknown",
            "service": version.service.name if version.author else "",
            "count_text": _count(version),
            "rows": rows.plain[:OPEN_ROWS],
            "more_rows": rows.plain[OPEN_ROWS:],
            "technical_rows": rows.technical,
            "hidden": rows.note,
            "rest_url": _rest(version, rows, self.path),
            "snapshot": _snapshot(version, self.fields(version)),
            "note": older_text(version),
            "came": gaps.came(version),
            "held": self.held.get((entity.name, id, number), ()),
            "gap": gaps.text(version),
            "gap_links": gaps.to_pages(version),
            "older_link": gaps.to_older(version),
            "own_url": links.snapshot(entity, id, *here),
            "raw_url": links.as_json(entity, id, *here),
            "twins_url": _twins(version, self.twice.get((entity, id, number), ())),
        }
        if other:
            card["other_url"] = links.snapshot(entity, id, number, other)
        if self.titles:
            application = version.product_instance_id or id
            card["application"] = self.titles.get(application) or application
            card["application_url"] = links.application(application)
        if self.merged:
            card["subject"] = title(entity)
            if entity.parent:
                card["subject_name"] = name(version)
                card["subject_url"] = links.timeline(entity, id)
        elif self.newest is not None and self.newest != here:
            card["compare_url"] = links.comparison(entity, id, here, self.newest)
        return card

    def _rows(self, version: Version, most: int) -> ChangeRows:
        entity, id = version.entity, version.id

        def link(change: Change) -> str:
            return links.field(entity, id, change.key_path)

        changes = ordered(version.changes, self.path)
        return change_rows(changes, version.data, self.fields(version), link, most)

    def fields(self, version: Version) -> Fields:
        """The field names of a version's document."""
        entity, id, number, at = version.entity, version.id, version.version, version.updated_at
        found = fields_of(entity, self.room)
        if self.unmask:
            return replace(found, unmask=lambda path: links.unmask(entity, id, number, path, at))
        return found


def folded(cards: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    """The cards in groups, in order. quiet: versions in a row that changed nothing, or technical
    fields only, where there are several; a group of the others is shown as it is."""
    groups: list[dict[str, object]] = []
    for quiet, its in groupby(cards, key=_quiet):
        shown = list(its)
        groups.append({"quiet": quiet and len(shown) > 1, "cards": shown})
    return groups


def _quiet(card: Mapping[str, object]) -> bool:
    said = ("rows", "snapshot", "hidden", "note", "gap", "gap_links", "came", "twins_url", "held")
    return card["kind"] == "updated" and not any(card[each] for each in said)


def fields_of(entity: Entity, room: Room | None = None) -> Fields:
    """The field names of a kind, in the reader's language. room: of the page that shows values."""
    return Fields(labels.catalogue(), entity.name, (get_language() or "ru")[:2], room or Room())


def title(entity: Entity) -> str:
    """The kind's title in the reader's language."""
    return entity.title_ru if (get_language() or "ru").startswith("ru") else entity.title


def kind_text(kind: ChangeType) -> str:
    return str(WHAT[kind])


def name(version: Version) -> str:
    """The headline of the document, or of the one before it was deleted."""
    old = version.changes[0].change.old if version.changes else None
    return headline(version.data) or headline(old)


def _count(version: Version) -> str:
    if version.previous_version is None:
        return ""
    if not version.changes:
        return _("nothing changed")
    plain = sum(not one.technical for one in version.changes)
    if not plain and version.type is ChangeType.DELETE:
        return ""
    if not plain:
        return _("only technical fields")
    return ngettext("{n} change", "{n} changes", plain).format(n=plain)


def _snapshot(version: Version, fields: Fields) -> Sequence[Item]:
    if version.previous_version is None and isinstance(version.data, dict):
        return members(version.data, fields, "", 1)
    return ()


def _twins(version: Version, times: Sequence[datetime]) -> str:
    """The comparison with the youngest version of its number, of that with the oldest; or empty."""
    if not times:
        return ""
    number, made = version.version, version.updated_at
    older = times[0] if made == times[-1] else made
    return links.comparison(version.entity, version.id, (number, older), (number, times[-1]))


def _rest(version: Version, rows: ChangeRows, path: str | None) -> str:
    """The comparison with the version before, from the first change that has no row on."""
    number, moment = version.previous_version, version.previous_updated_at
    if not rows.hidden or number is None or moment is None:
        return ""
    here = version.version, version.updated_at
    address = links.comparison(version.entity, version.id, (number, moment), here, path)
    return after(address, len(rows.plain) + len(rows.technical))


def older_text(version: Version) -> str:
    """Why there is nothing below the lowest version; empty for every other one."""
    if version.older is Absence.ARCHIVED:
        return _("Older versions are in the archive. {ask}").format(ask=gaps.ask_archive())
    if version.older is Absence.REMOVED:
        return _("Older versions were removed: they are past the days that are kept.")
    if version.came and version.older:
        return _("Older versions are not all in the store.")
    if version.older is Absence.NEVER_ARRIVED:
        return _("Older versions never arrived.")
    if version.older is Absence.UNKNOWN:
        return _("Older versions are not in the store: removed by age, or never arrived.")
    return ""
