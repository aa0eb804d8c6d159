"""The days of a timeline as a picture, and as a table with the same links."""

from collections import defaultdict
from datetime import date, timedelta
from itertools import pairwise
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from history.admin.parts.cards import title
from history.admin.parts.clerk.picture import Day, day_bars
from history.entities import ENTITIES, Entity
from history.timeline import Reader

FEWEST_DAYS = 2
MOST_ROWS = 60  # of the table; the picture has all days


def of_timeline(
    reader: Reader, entity: Entity, id: str, address: str, zone: ZoneInfo, *, whole: bool
) -> dict[str, object]:
    """picture, its days newest first, and the kinds in the order of their colours; nothing for a
    history of one day. Of the store alone. whole: of an application with its children."""
    keys = reader.members(id) if whole else {(entity, id): reader.keys(entity, [id]).get(id, [])}
    counts: dict[date, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    gaps: set[date] = set()
    for (kind, _id), its in keys.items():
        for key in its:
            counts[key.updated_at.astimezone(zone).date()][kind.name] += 1
        for before, after in pairwise(sorted(its)):
            if after.version > before.version + 1:
                gaps.add(after.updated_at.astimezone(zone).date())
    if len(counts) < FEWEST_DAYS:
        return {}
    kinds = [one for one in ENTITIES if any(one.name in its for its in counts.values())]
    days = [
        Day(
            day,
            [its.get(one.name, 0) for one in kinds],
            _url(address, day, zone),
            _text(day, sum(its.values()), gap=day in gaps),
        )
        for day, its in sorted(counts.items())
    ]
    return {
        "picture": day_bars(days, days[0].day, days[-1].day),
        "picture_ends": [date_format(one.day, _("j F Y")) for one in (days[0], days[-1])],
        "picture_days": days[::-1][:MOST_ROWS],
        "picture_kinds": [title(one) for one in kinds],
    }


def _url(address: str, day: date, zone: ZoneInfo) -> str:
    """The versions of one day."""
    following = day + timedelta(days=1)
    asked = {"from": f"{day}T00:00", "to": f"{following}T00:00", "tz": zone.key}
    return f"{address}?{urlencode(asked)}"


def _text(day: date, count: int, *, gap: bool) -> str:
    versions = ngettext("{n} version", "{n} versions", count).format(n=count)
    said = f"{date_format(day, _('j F Y'))}: {versions}"
    return f"{said}, {_('versions are missing')}" if gap else said
