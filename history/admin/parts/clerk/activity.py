"""The days of a timeline as a picture, and as a table with the same links."""

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

from history.admin.parts.cards import title
from history.admin.parts.clerk.picture import DayBar, day_bars
from history.entities import ENTITIES, Entity
from history.models import ArchivedDay, SealedDay
from history.record import ChangeType
from history.timeline import Filters, Query, Reader
from history.timeline.states import Members
from history.versions import Key

FEWEST_DAYS = 2
MOST_ROWS = 60  # of the table; the picture has all days
MOST_DELETED = 200
DELETED = Filters(type=ChangeType.DELETE)
Marks = dict[str, set[date]]


def of_timeline(
    reader: Reader,
    entity: Entity,
    id: str,
    url: Callable[[date], str],
    members: Members | None,
) -> dict[str, object]:
    """picture, its days newest first, and the kinds in the order of their colours; nothing for a
    history of one day. Of the store alone. url: where a day leads. members: of an application
    with its children, else None."""
    whole = members is not None
    keys = members or {(entity, id): reader.keys(entity, [id]).get(id, [])}
    counts: dict[date, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    marks: Marks = defaultdict(set)
    for (kind, _id), its in keys.items():
        for key in its:
            counts[timezone.localdate(key.updated_at)][kind.name] += 1
        for before, after in pairwise(sorted(its)):
            if after.version > before.version + 1:
                marks["lost"].add(timezone.localdate(after.updated_at))
    if len(counts) < FEWEST_DAYS:
        return {}
    kinds = [one for one in ENTITIES if any(one.name in its for its in counts.values())]
    first, last = min(counts), max(counts)
    gone = _deleted(reader, entity, id, whole=whole)
    marks["gone"] = {timezone.localdate(key.updated_at) for key in gone}
    for state, day in _states(kinds, last):
        marks[state].add(day)
    days = [
        DayBar(
            day,
            [its.get(one.name, 0) for one in kinds],
            url(day),
            _text(day, sum(its.values()), shown := [one for one in _words() if day in marks[one]]),
            shown,
        )
        for day, its in sorted(counts.items())
    ]
    used = dict.fromkeys(chain.from_iterable(one.marks for one in days))
    older = sorted(day for day in marks["archived"] if day < first)
    return {
        "picture": day_bars(days, first, last),
        "picture_ends": [_day(one) for one in (first, last)],
        "picture_days": days[::-1][:MOST_ROWS],
        "picture_kinds": [title(one) for one in kinds],
        "picture_marks": [(one, word) for one, word in _words().items() if one in used],
        "picture_archive": [_day(one) for one in older[:1] + older[-1:]],
    }


def versions_of(address: str) -> Callable[[date], str]:
    """The address of the versions of a day."""
    here = timezone.get_current_timezone_name()

    def url(day: date) -> str:
        following = day + timedelta(days=1)
        asked = {"from": f"{day:%d.%m.%Y}", "to": f"{following:%d.%m.%Y}", "tz": here}
        return f"{address}?{urlencode(asked)}"

    return url


def end_of(address: str) -> Callable[[date], str]:
    """The address of the page of a moment, of the end of a day: a date, as people write it."""
    here = timezone.get_current_timezone_name()

    def url(day: date) -> str:
        return f"{address}?{urlencode({'time': f'{day:%d.%m.%Y}', 'tz': here})}"

    return url


def _deleted(reader: Reader, entity: Entity, id: str, *, whole: bool) -> Iterable[Key]:
    query = Query(id=id, filters=DELETED)
    if not whole:
        return (row.key for row in reader.page(entity, query, None, MOST_DELETED).rows)
    found, _keys = reader.of_application(query, None, MOST_DELETED)
    return (key for _kind, _id, key in found)


def _states(kinds: Sequence[Entity], last: date) -> Iterator[tuple[str, date]]:
    """What became of the days of their tables; days are those of UTC."""
    asked = {"table__in": [one.table for one in kinds], "day__lte": last}
    packed = SealedDay.objects.filter(**asked, packed_at__isnull=False)
    archived = ArchivedDay.objects.filter(**asked)
    named = [
        each.annotate(state=Value(name)).values_list("state", "day")
        for name, each in (("packed", packed), ("archived", archived))
    ]
    yield from named[0].union(named[1])


def _words() -> dict[str, str]:
    return {
        "gone": _("deletion"),
        "lost": _("versions are missing"),
        "packed": _("packed day"),
        "archived": _("archived day"),
    }


def _day(day: date) -> str:
    return date_format(day, _("j F Y"))


def _text(day: date, count: int, marks: Sequence[str]) -> str:
    versions = ngettext("{n} version", "{n} versions", count).format(n=count)
    return ", ".join([f"{_day(day)}: {versions}", *(_words()[one] for one in marks)])
