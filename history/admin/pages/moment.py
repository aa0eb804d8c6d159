"""An application and its children as they were at a moment."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from history import timeline
from history.admin.pages.view import may_view_history
from history.admin.parts import gaps, heads, held, links, standing
from history.admin.parts.cards import fields_of, title
from history.admin.parts.change_rows import change_rows, ordered
from history.admin.parts.clerk import activity
from history.admin.parts.filter_form import MomentForm
from history.admin.parts.headline import Room, headline, shared
from history.admin.parts.heads import MOST_PARTS
from history.admin.parts.values import members
from history.base import clock
from history.diff import Change
from history.entities import root
from history.held_messages import Quarantined
from history.record import ChangeType
from history.requests.worker_shares import expensive_view
from history.timeline import (
    Absence,
    ApplicationState,
    MissingPart,
    OlderThanRetentionError,
    Reader,
    Version,
)
from history.timeline.keys import Keys

MOST_ROWS = 30  # of what differs in a part


@may_view_history
@expensive_view
def page(request: HttpRequest, reader: Reader, id: str) -> HttpResponse:
    """?time= in the zone ?tz=, else in the reader's; without it, now. 404 with a reason."""
    form = MomentForm(request.GET if "time" in request.GET else None)
    given = form.is_valid()
    note = ""
    try:
        moment = form.cleaned_data["at"] if given else clock.now()
        found = timeline.application_at(reader, id, moment, MOST_PARTS)
    except timeline.NotFoundError as error:
        try:  # it may be there at another moment
            found = timeline.application_at(reader, id, clock.now(), MOST_PARTS)
        except timeline.NotFoundError:
            raise error from None
        note = f"{_nothing(error)} {gaps.kept(moment)}".rstrip()
    empty = note or (form.is_bound and not given)
    compared = given and not empty
    today = (
        timeline.application_at(reader, id, clock.now(), MOST_PARTS, found.members)
        if compared
        else None
    )
    days = activity.end_of(links.application_at(id))
    context = {
        **heads.context(
            request,
            reader,
            root(),
            id,
            found.application,
            tab="at",
            then=compared,
            today=today.application if today else None,
        ),
        "form": form,
        "action": links.application_at(id),
        "now": not form.is_bound,
        "said": moment if compared else None,
        "parts": [] if empty else _parts(found, today, _held(request, reader, found, moment)),
        "later": _later(found, today),
        **activity.of_timeline(reader, root(), id, days, found.members),
        "hidden": 0 if empty else found.unread,
        "notes": [note] if note else [] if empty else [_missing(each) for each in found.missing],
    }
    return render(request, "history/moment.html", context, status=404 if note else 200)


def _nothing(error: timeline.NotFoundError) -> str:
    """Why an application that the store has shows nothing at a moment."""
    if error.why is Absence.UNKNOWN:
        return _(
            "The versions of that moment are not in the store: removed by age, or never arrived."
        )
    if error.why is Absence.ARCHIVED:
        text = _("The versions of that moment may be in the archive. {ask}")
        return text.format(ask=gaps.ask_archive())
    if isinstance(error, OlderThanRetentionError):
        return _("The versions of that moment were removed: they are past the days that are kept.")
    if error.why is None:
        return _("{kind}: did not exist yet at that moment.").format(kind=title(root()))
    return _("The version of that moment never arrived.")


def _all(found: ApplicationState) -> tuple[Version, ...]:
    """The application, then its children by kind, those that had been deleted at the end."""
    own = [found.application] if found.application else []
    return (*own, *found.children, *found.deleted)


# The messages that may have changed the state of each part, by kind and id.
Held: TypeAlias = Mapping[tuple[str, str], Sequence[Quarantined]]


def _held(request: HttpRequest, reader: Reader, found: ApplicationState, moment: datetime) -> Held:
    messages = standing.of(request).messages(reader).messages
    keys = {named: Keys(its) for named, its in found.members.items()}
    its: defaultdict[tuple[str, str], list[Quarantined]] = defaultdict(list)
    for each in timeline.open_at(messages, moment, keys):
        its[each.entity, each.id].append(each)
    return its


def _parts(
    found: ApplicationState, today: ApplicationState | None, messages: Held
) -> list[dict[str, object]]:
    """today: what each is compared with; None where the page is of today."""
    room = Room()
    now = {(each.entity.name, each.id): each for each in _all(today)} if today else {}
    same = shared((each.entity.name, _name(each), each.id) for each in _all(found))
    return [
        _part(each, room)
        | {"named": (each.entity.name, _name(each)) not in same}
        | _compared(each, now.get((each.entity.name, each.id)), room)
        | _gap(
            found.following.get((each.entity, each.id)),
            messages.get((each.entity.name, each.id), ()),
        )
        for each in _all(found)
    ]


def _gap(following: Version | None, messages: Sequence[Quarantined]) -> dict[str, object]:
    """That versions are missing, or in quarantine, which may have come before the moment.
    following: the next one."""
    came = list(gaps.came(following)) if following else []
    told = following.came if following else {}
    others = [each for each in messages if each.version is None or each.version not in told]
    came += held.HTML.several(others, held.HTML.message, cut=False)
    if following is None and not came:
        return {}
    missing = (gaps.text(following) if following else "") or _("Not all versions are in the store")
    said = _("{missing}: the state at this moment may have been different.")
    return {"came": came, "gap": said.format(missing=missing)}


def _compared(version: Version, today: Version | None, room: Room) -> dict[str, object]:
    """same: it is the newest version. rows: what differs from today; note: of what has no row."""
    if today is None:
        return {}
    here, newest = ((each.version, each.updated_at) for each in (version, today))
    if here == newest:
        return {"same": True}
    entity, id = version.entity, version.id

    def link(change: Change) -> str:
        return links.field(entity, id, change.key_path)

    found: dict[str, object] = {"compare_url": links.comparison(entity, id, here, newest)}
    if today.type is ChangeType.DELETE:
        return found | {"gone": version.type is not ChangeType.DELETE}
    if version.snapshot and today.snapshot:
        changes = ordered(timeline.differences(version, today))
        rows = change_rows(changes, today.data, fields_of(entity, room), link, MOST_ROWS)
        found |= {"rows": rows.plain, "note": rows.note, "technical": not rows.plain}
    return found


def _later(found: ApplicationState, today: ApplicationState | None) -> list[tuple[str, str, str]]:
    """Kind, name and address of the first children that came after the moment. A name that several
    have is followed by the id."""
    known = {(each.entity.name, each.id) for each in _all(found)}
    known |= {(each.entity.name, each.id) for each in found.missing}
    children = today.children if today else ()
    later = [each for each in children if (each.entity.name, each.id) not in known]
    same = shared((each.entity.name, _name(each), each.id) for each in children)
    rows = []
    for each in later[:MOST_ROWS]:
        name = _name(each)
        if (each.entity.name, name) in same:
            name = f"{name} {each.id}"
        rows.append((title(each.entity), name, links.timeline(each.entity, each.id)))
    return rows


def _name(version: Version) -> str:
    return headline(version.data) or version.id


def _part(version: Version, room: Room) -> dict[str, object]:
    """The application or a child, in the version of the moment. items: the fields of its document;
    empty for one that had been deleted, and beyond what a page shows."""
    entity, data = version.entity, version.data
    deleted = version.type is ChangeType.DELETE
    document = data if isinstance(data, dict) and not deleted else {}
    return {
        "version": version,
        "kind": title(entity),
        "name": _name(version),
        "who": heads.changed_by(version),
        "deleted": deleted,
        "items": members(document, fields_of(entity, room), "", 1),
        "url": links.timeline(entity, version.id),
        "snapshot_url": links.snapshot(entity, version.id, version.version, version.updated_at),
    }


def _missing(part: MissingPart) -> str:
    if part.why is Absence.DAMAGED:
        text = _("{kind} {id}: the version of that moment is damaged and cannot be read.")
        return text.format(kind=title(part.entity), id=part.id)
    text = (
        _("{kind} {id}: the version of that moment never arrived.")
        if part.why is Absence.NEVER_ARRIVED
        else _("{kind} {id}: the version of that moment is not in the store.")
    )
    return text.format(kind=title(part.entity), id=part.id)
