"""The page that compares two versions of one document."""

from datetime import datetime

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from history import timeline
from history.admin.components import links, page_head
from history.admin.components.cards import make_field_names
from history.admin.components.change_rows import make_change_rows, order_changes
from history.admin.components.headline import limit_to_title_fields
from history.admin.components.links import AFTER, build_row_page_urls, parse_start
from history.admin.pages.permission import require_history_permission
from history.diff import BadPathError, parse_path
from history.kinds.entities import EntityKind
from history.timeline import HistoryReader, Version


@require_history_permission
def show_comparison(
    request: HttpRequest, reader: HistoryReader, entity: EntityKind, id: str
) -> HttpResponse:
    """Compare the versions ?from= and ?to=, or show a form that asks for the two numbers.

    If several versions have one of these numbers, ?fromAt= and ?toAt= are the moments of the two
    versions. ?after= is the number of changes on earlier pages.
    """
    old, new = (links.parse_number(request.GET.get(name, "")) for name in ("from", "to"))
    if old is None or new is None:
        return _ask_for_versions(request, reader, entity, id)
    moments = [links.parse_moment(request.GET.get(name)) for name in (links.FROM_AT, links.TO_AT)]
    comparison = timeline.compare_versions(reader, entity, id, old, new, *moments)
    keys = timeline.fetch_keys(reader, entity, [id]).get(id, ())
    count = sum(not change.technical for change in comparison.changes)
    start = parse_start(request.GET.get(AFTER, ""), len(comparison.changes))
    path = _parse_path(request)
    changes = order_changes(comparison.changes, path)
    rows = make_change_rows(changes, comparison.after.data, make_field_names(entity), start=start)
    own_url = links.build_comparison_url(
        entity,
        id,
        _get_number_and_moment(comparison.before),
        _get_number_and_moment(comparison.after),
        path,
    )
    return render(
        request,
        "history/compare.html",
        {
            **page_head.make_context(
                request,
                reader,
                entity,
                id,
                comparison.after,
                name=_("versions {old} and {new}").format(old=old, new=new),
            ),
            "from_version": old,
            "to_version": new,
            "columns": [
                {
                    "version": version,
                    "changed_by": page_head.get_maker_name(version),
                    "raw_url": links.build_snapshot_url(
                        entity, id, *_get_number_and_moment(version)
                    ),
                }
                for version in (comparison.before, comparison.after)
            ],
            "rows": rows.plain,
            "technical_rows": rows.technical,
            **build_row_page_urls(
                own_url, start, len(comparison.changes), _("Changes {first}–{last} of {count}")
            ),
            "same_number": page_head.find_other_versions(keys, comparison.before, comparison.after),
            "swap_url": links.build_comparison_url(
                entity,
                id,
                _get_number_and_moment(comparison.after),
                _get_number_and_moment(comparison.before),
            ),
            "count_text": ngettext("{n} change", "{n} changes", count).format(n=count),
        },
    )


def _parse_path(request: HttpRequest) -> str | None:
    """Return the request's ?path=, or None if it is missing or not a path."""
    try:
        parse_path(path := request.GET.get(links.PATH, ""))
    except BadPathError:
        return None
    return path or None


def _ask_for_versions(
    request: HttpRequest, reader: HistoryReader, entity: EntityKind, id: str
) -> HttpResponse:
    newest = timeline.fetch_newest_version(limit_to_title_fields(reader), entity, id)
    context = page_head.make_context(request, reader, entity, id, newest, name=_("comparison"))
    notes = [_("Enter the numbers of two versions.")]
    return render(request, "history/compare.html", {**context, "notes": notes})


def _get_number_and_moment(version: Version) -> tuple[int, datetime]:
    return version.version, version.updated_at
