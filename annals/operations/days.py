"""The days as a calendar: what each one is, what it takes, and what happens to it next."""

from __future__ import annotations

import calendar
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from operator import attrgetter
from typing import Any, Final

from django.conf import settings
from django.contrib import admin
from django.db import connection
from django.db.models import Max
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.defaultfilters import filesizeformat
from django.utils.formats import date_format
from django.utils.functional import Promise
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from annals.access.journal import days as journal
from history import complete_to, packing
from history.admin.parts.cards import title
from history.base import clock
from history.base.plain_text import figure
from history.daily.days import DayState
from history.database import forms
from history.entities import BY_TABLE, ENTITIES
from history.models import ArchivedDay, DaySeal, SealedDay, VerifiedTable
from history.partitions import state
from history.partitions.catalog import Partition
from history.partitions.plan import Policy, plan
from history.requests.worker_shares import expensive_view
from ingest.completeness.holds import may_get_rows
from ingest.completeness.views import why

ONE: Final = timedelta(days=1)
# Of the tables of a day the calendar shows the first of these.
STATES: Final[Mapping[str, Promise]] = {
    "missing": _("no partition"),
    "detached": _("detached, not dropped yet"),
    "held": _("held"),
    "plain": _("plain"),
    "packed": _("packed"),
    "sealed": _("sealed"),
    "verified": _("sealed and verified"),
    "archived": _("archived"),
    "ahead": _("ahead, empty"),
}


@dataclass(frozen=True, slots=True)
class TableDay:
    """One day of one table. part: None if it has no partition. held: why it stays longer than
    retention says. unpacked: why it is not packed though it should be. verified: when `partitions
    verify` compared it with its seal."""

    table: str
    day: date
    today: date
    part: Partition | None = None
    held: str = ""
    unpacked: str = ""
    packed: datetime | None = None
    sealed: datetime | None = None
    verified: datetime | None = None
    archived: ArchivedDay | None = None

    @property
    def state(self) -> str:
        """One of STATES."""
        if self.part is None:
            return "archived" if self.archived else "missing"
        if self.part.state is not DayState.ATTACHED:
            return "detached"
        if self.held:
            return "held"
        if self.day > self.today:
            return "ahead"
        if self.sealed is None:
            return "packed" if self.packed else "plain"
        return "verified" if self.verified else "sealed"

    @property
    def words(self) -> Promise:
        return STATES[self.state]

    @property
    def name(self) -> str:
        return table_name(self.table)

    @property
    def rows(self) -> str:
        """Empty where the table has blocks of rows."""
        if self.packed:
            return ""
        rows = self.part.rows if self.part else self.archived.rows if self.archived else 0
        return figure(rows)

    @property
    def bytes(self) -> int:
        """On disk; of an archived day that of its files."""
        return self.part.bytes if self.part else self.archived.file_bytes if self.archived else 0

    @property
    def size(self) -> str:
        return filesizeformat(self.bytes)

    @property
    def next(self) -> str:
        """What `maintain` does with it next, and when."""
        return "; ".join(_next(self))


@dataclass(frozen=True, slots=True)
class AlikeDays:
    """Tables of days of which the page says the same."""

    tables: Sequence[TableDay]
    text: str

    @property
    def place(self) -> str:
        """The day and the table, or how many there are and of which days."""
        first, last = (_day(pick(one.day for one in self.tables)) for pick in (min, max))
        days = first if first == last else f"{first} – {last}"
        names = list(dict.fromkeys(one.name for one in self.tables))
        if first == last or len(self.tables) == 1:
            return f"{days} {', '.join(names)}"
        count = ngettext("{n} daily table", "{n} daily tables", len(self.tables))
        return f"{days}, {count.format(n=figure(len(self.tables)))}"


def _alike(tables: Iterable[TableDay], text: Callable[[TableDay], str]) -> list[AlikeDays]:
    """Return the tables of days in groups with the same text, in the order of the first of each."""
    found: dict[str, list[TableDay]] = {}
    for one in tables:
        found.setdefault(text(one), []).append(one)
    return [AlikeDays(its, said) for said, its in found.items()]


def table_name(table: str) -> str:
    """For people."""
    return title(BY_TABLE[table]) if table in BY_TABLE else gettext("Access journal")


def _next(one: TableDay) -> Iterator[str]:
    annals, versions = settings.ANNALS, one.table in BY_TABLE
    if one.part is None:
        if one.state == "missing":
            yield gettext("created by the next run")
        return
    pack_after = annals.pack_after_days if versions else 0
    if pack_after and not one.packed and one.part.rows and one.day <= one.today:
        yield _after(one, pack_after, gettext("packed after {day}"), gettext("to be packed"))
    seal_after = annals.seal_days if versions else journal.ROWS.closed.seal_after
    open_ = one.sealed is None and one.archived is None
    if seal_after and open_ and one.part.rows and one.day <= one.today:
        yield _after(one, seal_after, gettext("sealed after {day}"), gettext("to be sealed"))
    kept = annals.retention_days if versions else annals.journal_days
    if one.held:
        until = _day(one.day + timedelta(kept + annals.hold_days))
        yield gettext("held until {day} at most").format(day=until)
    elif one.part.restored:
        yield gettext("stays until it is released")
    else:
        archives = versions and annals.archive_url
        words = (
            gettext("archived and dropped after {day}")
            if archives
            else gettext("dropped after {day}")
        )
        yield _after(one, kept, words, gettext("to be dropped"))


def _after(one: TableDay, days: int, words: str, overdue: str) -> str:
    """What is done this many days after a day; since when it is due, where that is past."""
    last = one.day + timedelta(days)
    if one.today <= last:
        return words.format(day=_day(last))
    return gettext("{what}, due since {day}").format(what=overdue, day=_day(last + ONE))


def _day(day: date) -> str:
    return date_format(day, gettext("Y-m-d"))


@expensive_view
def page(request: HttpRequest) -> HttpResponse:
    """?day= shows the tables of a day."""
    now = clock.now()
    by_day = _table_days(now)
    try:
        chosen = date.fromisoformat(request.GET.get("day", ""))
    except ValueError:
        chosen = None
    context: dict[str, Any] = {
        "title": gettext("Days"),
        "months": list(_months(by_day)),
        "chosen": chosen if chosen in by_day else None,
        "tables": by_day.get(chosen, ()) if chosen else (),
        "held": _alike(
            (one for its in by_day.values() for one in its if one.state == "held"),
            lambda one: f"{one.held}; {one.next}",
        ),
        "unpacked": _alike(
            [one for its in by_day.values() for one in its if one.unpacked][::-1],
            attrgetter("unpacked"),
        ),
        "states": STATES.items(),
        "run": state.latest(),
        "today": now.date(),
        "complete": complete_to.read(ENTITIES),
    }
    shown = {**admin.site.each_context(request), **context}
    return render(request, "operations/days.html", shown)


def _table_days(now: datetime) -> dict[date, Sequence[TableDay]]:
    """What each day is, the oldest first."""
    today = now.date()
    seals = DaySeal.objects.values_list("table", "day").annotate(at=Max("sealed_at"))
    sealed = {(table, day): at for table, day, at in seals}
    packed = {
        (each.table, each.day): each.packed_at
        for each in SealedDay.objects.filter(packed_at__isnull=False)
    }
    verified = dict(VerifiedTable.objects.values_list("table", "started_at"))
    archived = {
        (each.table, each.day): each
        for each in ArchivedDay.objects.defer("files").order_by("day", "table")
    }
    plans = plan(Policy.at(now, may_get_rows), tables=journal.tables())
    parts = [part for each in plans if each.of_versions for part in each.strategy.existing]
    behind = packing.behind(parts, today, settings.ANNALS.pack_after_days)
    waits = may_get_rows(set(behind))
    later = gettext("waits for the next annals partitions maintain")
    if behind and (sessions := forms.find_unready(connection.connection)):
        text = gettext("waits until no process of an earlier release is connected: {sessions}")
        later = text.format(sessions=", ".join(map(str, sessions)))
    unpacked = {place: why(waits[place]) if place in waits else later for place in behind}
    found: dict[tuple[date, str], TableDay] = {}
    for each in plans:
        strategy = each.strategy
        places: dict[date, Partition | None] = {
            part.day: part for part in strategy.existing if part.day
        }
        places |= {part.day: None for part in each.creations if part.found is None}
        places |= {day: None for table, day in archived if table == strategy.table} | places
        for day, part in places.items():
            place = strategy.table, day
            at, seen = sealed.get(place), verified.get(strategy.table)
            found[day, strategy.table] = TableDay(
                *place, today, part,
                held=why(strategy.holds.get(day, "")),
                unpacked=unpacked.get(place, ""),
                packed=packed.get(place),
                sealed=at,
                verified=seen if at and seen and at < seen else None,
                archived=archived.get(place),
            )  # fmt: skip
    by_day: defaultdict[date, list[TableDay]] = defaultdict(list)
    for (day, _table), one in sorted(found.items()):
        by_day[day].append(one)
    return dict(by_day)


@dataclass(frozen=True, slots=True)
class Cell:
    """A day of the calendar; state empty: outside of the days."""

    day: date
    state: str
    words: Promise | str
    size: str


def _months(by_day: Mapping[date, Sequence[TableDay]]) -> Iterator[tuple[date, list[list[Cell]]]]:
    """The first day and the weeks of each month, the newest month first."""
    order = list(STATES)
    weeks = calendar.Calendar()
    for year, month in sorted({(day.year, day.month) for day in by_day}, reverse=True):
        lines = []
        for week in weeks.monthdatescalendar(year, month):
            cells = []
            for day in week:
                its = by_day.get(day, ()) if day.month == month else ()
                # A table without rows is neither packed nor sealed, and hides that others are.
                full = [one for one in its if one.state != "plain" or one.rows != "0"] or its
                worst = min((one.state for one in full), key=order.index, default="")
                size = filesizeformat(sum(one.bytes for one in its)) if its else ""
                cells.append(Cell(day, worst, STATES.get(worst, ""), size))
            lines.append(cells)
        yield date(year, month, 1), lines
