"""Sentences and links of the screens about missing versions."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import NamedTuple

from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from history.admin.components import links
from history.common.moment_filter import format_day, when
from history.completeness import trace
from history.completeness.trace import Fate
from history.kinds.entities import EntityKind
from history.timeline import Absence, Version
from history.timeline.absence import get_retention_start

# The most sentences on one gap: about versions that arrived, and about ranges that did not.
MAX_SENTENCES = 5


class GapLink(NamedTuple):
    """A missing version and the address of its page."""

    version: int
    url: str


def describe_fate(fate: Fate) -> list[str]:
    """Return HTML sentences on the fate of a version or message. Times are in the viewer's zone."""
    return trace.describe_fate(fate, format_html, when)


def describe_arrived(
    version: Version, describe: Callable[[Fate], list[str]] = describe_fate
) -> list[str]:
    """Return sentences on the quarantined messages with missing versions before `version`.

    At most MAX_SENTENCES messages are described. A last sentence says how many more there are.

    Args:
        describe: Makes the sentences on one fate. By default they are HTML.
    """
    messages = list(version.quarantined.values())
    sentences = [
        sentence
        for message in messages[:MAX_SENTENCES]
        for sentence in describe(trace.make_quarantined_fate(message))
    ]
    more = len(messages) - MAX_SENTENCES
    if more > 0:
        text = ngettext(
            "{n} more came and is not stored.", "{n} more came and are not stored.", more
        )
        sentences.append(text.format(n=more))
    return sentences


def format_request_time(at: datetime) -> str:
    """Return a sentence as HTML: when the services were asked to send the versions of a gap."""
    return format_html(_("Asked for on {at}; not arrived yet."), at=when(at))


def explain_missing(version: Version) -> str:
    """Return a text on the missing versions before `version`, except those in quarantine.

    Empty if there are none.
    """
    sentences = []
    for number, run in enumerate(_split_into_runs(version)):
        if number == MAX_SENTENCES:
            sentences.append("…")
            break
        sentences.append(_explain_run(run, version.missing_reason))
    return ". ".join(sentences)


def link_missing_versions(version: Version) -> list[GapLink]:
    """Return links to the first and the last missing version before `version`."""
    first_and_last = version.missing[:1], version.missing[-1:]
    numbers = dict.fromkeys(number for end in first_and_last for number in end)
    return [_make_link(version.entity, version.id, number) for number in numbers]


def link_older_version(version: Version) -> GapLink | None:
    """Return a link to the page of the version just before `version`, which is the oldest stored.

    Returns None if `version` has the number 0, or if the store has an older version. Also returns
    None if retention can have removed older versions, unless one of them is in quarantine.
    """
    if version.version == 0 or not (
        version.quarantined or version.nothing_older_reason is Absence.NEVER_ARRIVED
    ):
        return None
    return (
        _make_link(version.entity, version.id, version.version - 1)
        if version.nothing_older_reason
        else None
    )


def explain_absence(number: int, absence: Absence | None) -> str:
    """Return a sentence on why the version with this number is not in the store."""
    if absence is Absence.NEVER_ARRIVED:
        return _("Version {n} never arrived").format(n=number)
    text = _("Version {n} is not in the store: removed by age, or never arrived")
    return text.format(n=number)


def get_archive_hint() -> str:
    return _("The administrator of Annals can bring back days of the archive.")


def explain_retention(moment: datetime | None) -> str:
    """Return a sentence that names the first day of retention, for a page about `moment`.

    Empty if `moment` is None, or after the beginning of that day.
    """
    start = get_retention_start()
    if moment is None or moment > start:
        return ""
    text = _("Versions are kept from {day} on: older ones may have been removed.")
    return text.format(day=format_day(timezone.localtime(start)))


def _explain_run(run: range, absence: Absence | None) -> str:
    if len(run) == 1:
        return explain_absence(run[0], absence)
    text = (
        _("Versions {first}–{last} never arrived")
        if absence is Absence.NEVER_ARRIVED
        else _("Versions {first}–{last} are not in the store: removed by age, or never arrived")
    )
    return text.format(first=run[0], last=run[-1])


def _split_into_runs(version: Version) -> Iterator[range]:
    """Return the missing versions before `version` as ranges, without versions in quarantine."""
    if not version.missing:
        return
    start = version.missing[0]
    for number in [*sorted(version.quarantined), version.missing[-1] + 1]:
        if number > start:
            yield range(start, number)
        start = number + 1


def _make_link(entity: EntityKind, id: str, number: int) -> GapLink:
    return GapLink(number, links.build_snapshot_url(entity, id, number))
