"""Shows on which days a document changed: as a picture, and as a table with the same links."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, timedelta
from itertools import chain, pairwise
from urllib.parse import urlencode

from django.db.models import Value
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from history import timeline
from history.admin.components.cards import get_kind_title
from history.admin.reading_aids.picture import DayBar, draw_day_bars
from history.documents.record import ChangeType
from history.kinds.entities import ENTITIES, EntityKind
from history.models import ArchivedDay, SealedDay
from history.store.versions import EntityRef, VersionKey
from history.timeline import HistoryReader, TimelineQuery, VersionFilters
from history.timeline.moments import Members

FEWEST_DAYS = 2
MOST_ROWS = 60  # how many days the table has; the picture has all
MOST_DELETED = 200
DELETED = VersionFilters(type=ChangeType.DELETE)
DaysByMark = dict[str, set[date]]


def make_activity_context(
    reader: HistoryReader,
    entity: EntityKind,
    id: str,
    build_url: Callable[[date], str],
    members: Members | None,
) -> dict[str, object]:
    """Return the variables for the picture of a timeline's days, and for the table below it.

    Only versions in the store count. Empty if all versions are of one day.

    Args:
        reader: Reads the keys of the versions.
        entity: The kind of the document.
        id: The id of the document.
        build_url: Returns the address that a day links to.
        members: The keys of all versions of an application and its children; None for the timeline
            of one document.
    """
    whole = members is not None
    keys = members or {EntityRef(entity, id): timeline.fetch_keys(reader, entity, [id]).get(id, [])}
    counts: dict[date, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    marks: DaysByMark = defaultdict(set)
    for (kind, _id), version_keys in keys.items():
        for key in version_keys:
            counts[timezone.localdate(key.updated_at)][kind.name] += 1
        for before, after in pairwise(sorted(version_keys)):
            if after.version > before.version + 1:
                marks["lost"].add(timezone.localdate(after.updated_at))
    if len(counts) < FEWEST_DAYS:
        return {}
    kinds = [
        kind for kind in ENTITIES if any(kind.name in day_counts for day_counts in counts.values())
    ]
    first, last = min(counts), max(counts)
    deletions = _find_deletions(reader, entity, id, whole=whole)
    marks["gone"] = {timezone.localdate(key.updated_at) for key in deletions}
    for state, day in _find_day_states(kinds, last):
        marks[state].add(day)
    days = [
        DayBar(
            day,
            [day_counts.get(kind.name, 0) for kind in kinds],
            build_url(day),
            _describe_day(
                day,
                sum(day_counts.values()),
                day_marks := [mark for mark in _get_mark_words() if day in marks[mark]],
            ),
            day_marks,
        )
        for day, day_counts in sorted(counts.items())
    ]
    used = dict.fromkeys(chain.from_iterable(day_bar.marks for day_bar in days))
    older = sorted(day for day in marks["archived"] if day < first)
    return {
        "picture": draw_day_bars(days, first, last),
        "picture_ends": [_format_day(day) for day in (first, last)],
        "picture_days": days[::-1][:MOST_ROWS],
        "picture_kinds": [get_kind_title(kind) for kind in kinds],
        "picture_marks": [(mark, word) for mark, word in _get_mark_words().items() if mark in used],
        "picture_archive": [_format_day(day) for day in older[:1] + older[-1:]],
    }


def link_days_to_versions(address: str) -> Callable[[date], str]:
    """Return a function that builds, for a day, the address of the timeline of only that day.

    `address` is the address of the timeline without a filter.
    """
    zone_name = timezone.get_current_timezone_name()

    def build_url(day: date) -> str:
        following = day + timedelta(days=1)
        query = {"from": f"{day:%d.%m.%Y}", "to": f"{following:%d.%m.%Y}", "tz": zone_name}
        return f"{address}?{urlencode(query)}"

    return build_url


def link_days_to_moments(address: str) -> Callable[[date], str]:
    """Return a function that builds the address of an application as it was at the end of a day.

    `address` is the address of the application's page without a moment.
    """
    zone_name = timezone.get_current_timezone_name()

    def build_url(day: date) -> str:
        return f"{address}?{urlencode({'time': f'{day:%d.%m.%Y}', 'tz': zone_name})}"

    return build_url


def _find_deletions(
    reader: HistoryReader, entity: EntityKind, id: str, *, whole: bool
) -> Iterable[VersionKey]:
    query = TimelineQuery(id=id, filters=DELETED)
    if not whole:
        page = reader.policy.release(reader.source.fetch_page(entity, query, None, MOST_DELETED))
        return (row.key for row in reader.policy.apply(page.rows))
    application_page = reader.policy.release(
        reader.tolerant_source.fetch_application_page(query, None, MOST_DELETED)
    )
    return (ref.key for ref in application_page.refs)


def _find_day_states(kinds: Sequence[EntityKind], last: date) -> Iterator[tuple[str, date]]:
    """Yield ("packed", day) for each packed day, and ("archived", day) for each archived one.

    Args:
        kinds: The kinds to look at. A day is yielded if it is packed in one of their tables.
        last: The last day to look at, in UTC.
    """
    conditions = {"table__in": [kind.table for kind in kinds], "day__lte": last}
    packed = SealedDay.objects.filter(**conditions, packed_at__isnull=False)
    archived = ArchivedDay.objects.filter(**conditions)
    states = [
        days.annotate(state=Value(name)).values_list("state", "day")
        for name, days in (("packed", packed), ("archived", archived))
    ]
    yield from states[0].union(states[1])


def _get_mark_words() -> dict[str, str]:
    return {
        "gone": _("deletion"),
        "lost": _("versions are missing"),
        "packed": _("packed day"),
        "archived": _("archived day"),
    }


def _format_day(day: date) -> str:
    return date_format(day, _("j F Y"))


def _describe_day(day: date, count: int, marks: Sequence[str]) -> str:
    versions = ngettext("{n} version", "{n} versions", count).format(n=count)
    return ", ".join(
        [f"{_format_day(day)}: {versions}", *(_get_mark_words()[mark] for mark in marks)]
    )
