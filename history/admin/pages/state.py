"""The newest version of an entity: each field with who changed it last, and when."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from history import timeline
from history.admin.pages.view import may_view_history
from history.admin.parts import heads, links
from history.admin.parts.cards import fields_of
from history.admin.parts.change_rows import steps
from history.admin.parts.headline import Fields
from history.admin.parts.links import AFTER, MOST_ROWS, row_pages, start_of
from history.admin.parts.values import readable
from history.entities import Entity
from history.requests.worker_shares import expensive_view
from history.timeline import BlamedLeaf, Reader, Version


@may_view_history
@expensive_view
def page(request: HttpRequest, reader: Reader, entity: Entity, id: str) -> HttpResponse:
    """Technical fields are folded at the end. ?after=: how many fields came before."""
    found = timeline.blame(reader, entity, id)
    leaves = sorted(found.leaves, key=_technical)
    start = start_of(request.GET.get(AFTER, ""), len(leaves))
    shown = leaves[start : start + MOST_ROWS]
    fields = fields_of(entity)
    plain, technical = (
        [_line(fields, id, leaf, found.newest) for leaf in shown if _technical(leaf) is folded]
        for folded in (False, True)
    )
    return render(
        request,
        "history/state.html",
        {
            **heads.context(request, reader, entity, id, found.newest, tab="state"),
            "lines": plain,
            "technical_lines": technical,
            **row_pages(
                links.state(entity, id), start, len(leaves), _("Fields {first}–{last} of {count}")
            ),
        },
    )


def _technical(leaf: BlamedLeaf) -> bool:
    return leaf.label is not None and leaf.label.technical


def _line(fields: Fields, id: str, leaf: BlamedLeaf, newest: Version) -> dict[str, object]:
    """One leaf. trail and label as in ChangeRow. who: the person, else the service. url: all
    values of it, or of the list that it stands in; may be empty."""
    entity = newest.entity
    names = steps(leaf.key_path, newest.data, fields) or [""]
    origin = leaf.origin
    return {
        "trail": names[:-1],
        "label": names[-1],
        "path": leaf.path,
        "value": readable(leaf.value, fields, leaf.path),
        "origin": origin,
        "who": (origin.author or origin.service).name,
        "url": links.field(entity, id, leaf.history_path),
        "version_url": links.snapshot(entity, id, origin.version, origin.updated_at),
    }
