"""What the screens say of missing versions: which came, which never did, the page of each."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import NamedTuple

from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from history import trace
from history.admin.parts import links
from history.base.moments import day, when
from history.entities import Entity
from history.timeline import Absence, Version
from history.timeline.absence import kept_from
from history.trace import Fate

# Of one gap: sentences on versions that came, and ranges of those that did not.
MOST = 5


class GapLink(NamedTuple):
    """A missing version and the address of its page."""

    version: int
    url: str


def said(fate: Fate) -> list[str]:
    """The sentences on a version or message as HTML, its times in the browser's time zone."""
    return trace.said(fate, format_html, when)


def came(version: Version, say: Callable[[Fate], list[str]] = said) -> list[str]:
    """A sentence on each of the missing versions that came, as HTML; the first MOST. say: makes
    other texts of a fate."""
    held = list(version.came.values())
    found = [sentence for each in held[:MOST] for sentence in say(trace.quarantined_fate(each))]
    more = len(held) - MOST
    if more > 0:
        text = ngettext(
            "{n} more came and is not stored.", "{n} more came and are not stored.", more
        )
        found.append(text.format(n=more))
    return found


def asked(at: datetime) -> str:
    """That the services were asked for a gap, as HTML."""
    return format_html(_("Asked for on {at}; not arrived yet."), at=when(at))


def text(version: Version) -> str:
    """That the other missing versions are not in the store, and why; empty where there is none."""
    found = []
    for number, run in enumerate(_runs(version)):
        if number == MOST:
            found.append("…")
            break
        found.append(_missing(run, version.missing_why))
    return ". ".join(found)


def to_pages(version: Version) -> list[GapLink]:
    """To the pages of the first and the last of the missing versions."""
    ends = version.missing[:1], version.missing[-1:]
    numbers = dict.fromkeys(number for end in ends for number in end)
    return [_link(version.entity, version.id, number) for number in numbers]


def to_older(version: Version) -> GapLink | None:
    """To the page of the version before the oldest one that came, if it should be there."""
    if version.version == 0 or not (version.came or version.older is Absence.NEVER_ARRIVED):
        return None
    return _link(version.entity, version.id, version.version - 1) if version.older else None


def absent(number: int, why: Absence | None) -> str:
    """That a version is not in the store, though there are others of its entity."""
    if why is Absence.NEVER_ARRIVED:
        return _("Version {n} never arrived").format(n=number)
    text = _("Version {n} is not in the store: removed by age, or never arrived")
    return text.format(n=number)


def ask_archive() -> str:
    return _("The administrator of Annals can bring back days of the archive.")


def kept(asked: datetime | None) -> str:
    """From which day on versions are kept, where a moment before it was asked for; else empty."""
    start = kept_from()
    if asked is None or asked > start:
        return ""
    text = _("Versions are kept from {day} on: older ones may have been removed.")
    return text.format(day=day(timezone.localtime(start)))


def _missing(run: range, why: Absence | None) -> str:
    if len(run) == 1:
        return absent(run[0], why)
    several = (
        _("Versions {first}–{last} never arrived")
        if why is Absence.NEVER_ARRIVED
        else _("Versions {first}–{last} are not in the store: removed by age, or never arrived")
    )
    return several.format(first=run[0], last=run[-1])


def _runs(version: Version) -> Iterator[range]:
    """The missing versions that did not come, as runs."""
    if not version.missing:
        return
    start = version.missing[0]
    for number in [*sorted(version.came), version.missing[-1] + 1]:
        if number > start:
            yield range(start, number)
        start = number + 1


def _link(entity: Entity, id: str, number: int) -> GapLink:
    return GapLink(number, links.snapshot(entity, id, number))
