"""The calendar of days: the state and size of each day, and what happens to it next."""

from __future__ import annotations

import calendar
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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
from history.admin.components.cards import get_kind_title
from history.common import clock
from history.common.plain_text import format_figure
from history.common.worker_shares import mark_expensive
from history.completeness import complete_to
from history.kinds.entities import BY_TABLE, ENTITIES
from history.models import ArchivedDay, DaySeal, SealedDay, VerifiedTable
from history.retention import packing, runs
from history.retention.catalog import Partition
from history.retention.plan import PartitionPolicy, build_plans
from history.store.database import forms
from history.store.days.days import DayState
from ingest.completeness.holds import explain_days_to_hold
from ingest.messages.explanations import Explanation, join_english
from ingest.messages.translation import translate_all

ONE_DAY: Final = timedelta(days=1)
# If the tables of a day have different states, the calendar shows the state that comes first here.
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
    """A day of one table, as the calendar shows it."""

    table: str
    day: date
    today: date
    partition: Partition | None = None  # None: the day has no partition
    hold_reason: str = ""  # why the day is kept longer than retention says
    unpacked: str = ""  # why the day is not packed although it should be
    packed: datetime | None = None
    sealed: datetime | None = None
    verified: datetime | None = None  # when `partitions verify` compared it with its seal
    archived: ArchivedDay | None = None

    @property
    def state(self) -> str:
        """The state of the day, one of STATES."""
        if self.partition is None:
            return "archived" if self.archived else "missing"
        if self.partition.state is not DayState.ATTACHED:
            return "detached"
        if self.hold_reason:
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
        return get_table_title(self.table)

    @property
    def rows(self) -> str:
        """The number of rows as text. Empty for a packed day."""
        if self.packed:
            return ""
        rows = self.partition.rows if self.partition else self.archived.rows if self.archived else 0
        return format_figure(rows)

    @property
    def bytes(self) -> int:
        """The size on disk; for an archived day, the size of its files."""
        return (
            self.partition.bytes
            if self.partition
            else self.archived.file_bytes
            if self.archived
            else 0
        )

    @property
    def size(self) -> str:
        return filesizeformat(self.bytes)

    @property
    def next(self) -> str:
        """What the next runs of `partitions maintain` do with the day, and when."""
        return "; ".join(_describe_next_steps(self))


@dataclass(frozen=True, slots=True)
class TableDayGroup:
    """Days, of one or several tables, for which the page of days shows the same text."""

    tables: Sequence[TableDay]
    text: str

    @property
    def title(self) -> str:
        """One day with its tables, or a range of days with the number of partitions."""
        first, last = (
            _format_day(pick(table_day.day for table_day in self.tables)) for pick in (min, max)
        )
        days = first if first == last else f"{first} – {last}"
        names = list(dict.fromkeys(table_day.name for table_day in self.tables))
        if first == last or len(self.tables) == 1:
            return f"{days} {', '.join(names)}"
        count = ngettext("{n} daily table", "{n} daily tables", len(self.tables))
        return f"{days}, {count.format(n=format_figure(len(self.tables)))}"


def _group_by_text(
    table_days: Iterable[TableDay], get_text: Callable[[TableDay], str]
) -> list[TableDayGroup]:
    """Group the days of tables for which `get_text` returns the same text.

    The groups are in the order of their first days in `table_days`.
    """
    groups: dict[str, list[TableDay]] = {}
    for table_day in table_days:
        groups.setdefault(get_text(table_day), []).append(table_day)
    return [TableDayGroup(group, text) for text, group in groups.items()]


def get_table_title(table: str) -> str:
    """Return the name that pages show for a table."""
    return get_kind_title(BY_TABLE[table]) if table in BY_TABLE else gettext("Access journal")


def _describe_next_steps(table_day: TableDay) -> Iterator[str]:
    annals, versions = settings.ANNALS, table_day.table in BY_TABLE
    if table_day.partition is None:
        if table_day.state == "missing":
            yield gettext("created by the next run")
        return
    pack_after = annals.pack_after_days if versions else 0
    if (
        pack_after
        and not table_day.packed
        and table_day.partition.rows
        and table_day.day <= table_day.today
    ):
        yield _describe_due(
            table_day, pack_after, gettext("packed after {day}"), gettext("to be packed")
        )
    seal_after = annals.seal_days if versions else journal.ROWS.closing.seal_after
    open_ = table_day.sealed is None and table_day.archived is None
    if seal_after and open_ and table_day.partition.rows and table_day.day <= table_day.today:
        yield _describe_due(
            table_day, seal_after, gettext("sealed after {day}"), gettext("to be sealed")
        )
    kept_days = annals.retention_days if versions else annals.journal_days
    if table_day.hold_reason:
        until = _format_day(table_day.day + timedelta(kept_days + annals.hold_days))
        yield gettext("held until {day} at most").format(day=until)
    elif table_day.partition.restored:
        yield gettext("stays until it is released")
    else:
        archives = versions and annals.archive_url
        words = (
            gettext("archived and dropped after {day}")
            if archives
            else gettext("dropped after {day}")
        )
        yield _describe_due(table_day, kept_days, words, gettext("to be dropped"))


def _describe_due(table_day: TableDay, days: int, words: str, overdue: str) -> str:
    """Return a text about a step that `partitions maintain` has not yet done for a day of a table.

    Args:
        days: The step is due when more than this number of days have passed since the day of
            `table_day`.
        words: The text while the step is not due yet. In this text, `{day}` stands for the last day
            on which the step is not due.
        overdue: How the text names the step once the step is due, for example "to be packed".
    """
    last = table_day.day + timedelta(days)
    if table_day.today <= last:
        return words.format(day=_format_day(last))
    return gettext("{what}, due since {day}").format(what=overdue, day=_format_day(last + ONE_DAY))


def _format_day(day: date) -> str:
    return date_format(day, gettext("Y-m-d"))


@mark_expensive
def show_days(request: HttpRequest) -> HttpResponse:
    """Show the calendar of days. With ?day=, also show that day of each table."""
    now = clock.now()
    by_day = _load_table_days(now)
    try:
        chosen_day = date.fromisoformat(request.GET.get("day", ""))
    except ValueError:
        chosen_day = None
    context: dict[str, Any] = {
        "title": gettext("Days"),
        "months": list(_generate_months(by_day)),
        "chosen": chosen_day if chosen_day in by_day else None,
        "tables": by_day.get(chosen_day, ()) if chosen_day else (),
        "held": _group_by_text(
            (
                table_day
                for table_days in by_day.values()
                for table_day in table_days
                if table_day.state == "held"
            ),
            lambda table_day: f"{table_day.hold_reason}; {table_day.next}",
        ),
        "unpacked": _group_by_text(
            [
                table_day
                for table_days in by_day.values()
                for table_day in table_days
                if table_day.unpacked
            ][::-1],
            attrgetter("unpacked"),
        ),
        "states": STATES.items(),
        "run": runs.load_latest_run(),
        "today": now.date(),
        "complete": complete_to.read_completeness(ENTITIES),
    }
    full_context = {**admin.site.each_context(request), **context}
    return render(request, "operations/days.html", full_context)


def _load_table_days(now: datetime) -> dict[date, Sequence[TableDay]]:
    """Load the days of all tables, grouped by date. The oldest date comes first."""
    today = now.date()
    seals = DaySeal.objects.values_list("table", "day").annotate(at=Max("sealed_at"))
    sealed = {(table, day): at for table, day, at in seals}
    packed = {
        (sealed_day.table, sealed_day.day): sealed_day.packed_at
        for sealed_day in SealedDay.objects.filter(packed_at__isnull=False)
    }
    verified = dict(VerifiedTable.objects.values_list("table", "started_at"))
    archived = {
        (archived_day.table, archived_day.day): archived_day
        for archived_day in ArchivedDay.objects.defer("files").order_by("day", "table")
    }
    held: dict[tuple[str, date], list[Explanation]] = {}

    def find_held_days(days: Collection[tuple[str, date]]) -> dict[tuple[str, date], str]:
        reasons = explain_days_to_hold(days)
        held.update(reasons)
        return {day: join_english(explanations) for day, explanations in reasons.items()}

    plans = build_plans(PartitionPolicy.at(now, find_held_days), tables=journal.list_day_tables())
    partitions = [
        part
        for table_plan in plans
        if table_plan.has_versions
        for part in table_plan.strategy.existing
    ]
    overdue_days = packing.find_overdue_days(partitions, today, settings.ANNALS.pack_after_days)
    waiting = explain_days_to_hold(set(overdue_days))
    default_reason = gettext("waits for the next annals partitions maintain")
    if overdue_days and (sessions := forms.find_unready(connection.connection)):
        text = gettext("waits until no process of an earlier release is connected: {sessions}")
        default_reason = text.format(sessions=", ".join(map(str, sessions)))
    unpacked = {
        table_and_day: translate_all(waiting[table_and_day])
        if table_and_day in waiting
        else default_reason
        for table_and_day in overdue_days
    }
    table_days: dict[tuple[date, str], TableDay] = {}
    for table_plan in plans:
        strategy = table_plan.strategy
        partitions_by_day: dict[date, Partition | None] = {
            partition.day: partition for partition in strategy.existing if partition.day
        }
        partitions_by_day |= {
            partition.day: None for partition in table_plan.creations if partition.existing is None
        }
        archived_only = {day: None for table, day in archived if table == strategy.table}
        for day, part in (archived_only | partitions_by_day).items():
            key = strategy.table, day
            sealed_at, verified_at = sealed.get(key), verified.get(strategy.table)
            is_verified = sealed_at and verified_at and sealed_at < verified_at
            table_days[day, strategy.table] = TableDay(
                *key,
                today,
                part,
                hold_reason=translate_all(held.get(key, ())) if day in strategy.held_days else "",
                unpacked=unpacked.get(key, ""),
                packed=packed.get(key),
                sealed=sealed_at,
                verified=verified_at if is_verified else None,
                archived=archived.get(key),
            )
    by_day: defaultdict[date, list[TableDay]] = defaultdict(list)
    for (day, _table), table_day in sorted(table_days.items()):
        by_day[day].append(table_day)
    return dict(by_day)


@dataclass(frozen=True, slots=True)
class CalendarDay:
    """A day of the calendar.

    If the day has different states in different tables, `state` is the one that comes first in
    STATES. It is empty if no table has the day.
    """

    day: date
    state: str
    words: Promise | str
    size: str


def _generate_months(
    by_day: Mapping[date, Sequence[TableDay]],
) -> Iterator[tuple[date, list[list[CalendarDay]]]]:
    """Generate the first day and the weeks of each month, the newest month first."""
    order = list(STATES)
    weeks = calendar.Calendar()
    for year, month in sorted({(day.year, day.month) for day in by_day}, reverse=True):
        lines = []
        for week in weeks.monthdatescalendar(year, month):
            cells = []
            for day in week:
                table_days = by_day.get(day, ()) if day.month == month else ()
                # A table without rows is never packed or sealed, so it does not decide the state.
                with_rows = [
                    table_day
                    for table_day in table_days
                    if table_day.state != "plain" or table_day.rows != "0"
                ] or table_days
                worst = min(
                    (table_day.state for table_day in with_rows), key=order.index, default=""
                )
                size = (
                    filesizeformat(sum(table_day.bytes for table_day in table_days))
                    if table_days
                    else ""
                )
                cells.append(CalendarDay(day, worst, STATES.get(worst, ""), size))
            lines.append(cells)
        yield date(year, month, 1), lines
