"""The page with the fields of the newest version: who changed each field last, and when."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from history import timeline
from history.admin.components import links, page_head
from history.admin.components.cards import make_field_names
from history.admin.components.change_rows import get_step_names
from history.admin.components.headline import FieldTexts
from history.admin.components.links import (
    AFTER,
    MOST_ROWS,
    build_row_page_urls,
    parse_start,
)
from history.admin.components.values import make_value
from history.admin.pages.permission import require_history_permission
from history.common.worker_shares import mark_expensive
from history.kinds.entities import EntityKind
from history.timeline import BlamedLeaf, HistoryReader, Version


@require_history_permission
@mark_expensive
def show_state(
    request: HttpRequest, reader: HistoryReader, entity: EntityKind, id: str
) -> HttpResponse:
    """Show the fields of the newest version, technical ones folded at the end.

    ?after= is the number of fields on earlier pages.
    """
    blame = timeline.blame_leaves(reader, entity, id)
    leaves = sorted(blame.leaves, key=_is_technical)
    start = parse_start(request.GET.get(AFTER, ""), len(leaves))
    page_leaves = leaves[start : start + MOST_ROWS]
    fields = make_field_names(entity)
    plain, technical = (
        [
            _make_line(fields, id, leaf, blame.newest)
            for leaf in page_leaves
            if _is_technical(leaf) is folded
        ]
        for folded in (False, True)
    )
    return render(
        request,
        "history/state.html",
        {
            **page_head.make_context(request, reader, entity, id, blame.newest, tab="state"),
            "lines": plain,
            "technical_lines": technical,
            **build_row_page_urls(
                links.build_state_url(entity, id),
                start,
                len(leaves),
                _("Fields {first}–{last} of {count}"),
            ),
        },
    )


def _is_technical(leaf: BlamedLeaf) -> bool:
    return leaf.label is not None and leaf.label.technical


def _make_line(fields: FieldTexts, id: str, leaf: BlamedLeaf, newest: Version) -> dict[str, object]:
    """Return the template's variables for one field.

    `trail` and `label` are as in ChangeRow. `who` is the person who changed the field, or else the
    service. `url` is the address of the page with all values of the field. For a field inside a
    list it may be the page of the list. It is empty if there is no such page.
    """
    entity = newest.entity
    names = get_step_names(leaf.key_path, newest.data, fields) or [""]
    origin = leaf.origin
    return {
        "trail": names[:-1],
        "label": names[-1],
        "path": leaf.path,
        "value": make_value(leaf.value, fields, leaf.path),
        "origin": origin,
        "who": (origin.author or origin.service).name,
        "url": links.build_field_url(entity, id, leaf.history_path),
        "version_url": links.build_snapshot_url(entity, id, origin.version, origin.updated_at),
    }
