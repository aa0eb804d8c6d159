"""The page of one version: its changes, or its JSON to copy or download."""

from typing import NamedTuple

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from history import timeline
from history.admin.components import (
    links,
    open_messages,
    page_completeness,
    page_head,
)
from history.admin.components.cards import CardBuilder, make_field_names
from history.admin.components.change_rows import get_step_names
from history.admin.components.value_html import colour_json
from history.admin.components.values import make_items
from history.admin.pages.permission import require_history_permission
from history.admin.reading_aids.timeline_export import as_file
from history.documents.exactjson import format_indented
from history.kinds.entities import EntityKind
from history.policy import masking
from history.timeline import HistoryReader, Include, Version

CHANGES = frozenset({Include.CHANGES})
MOST_LETTERS = 200_000  # how much of the JSON the page shows; the file has all of it


@require_history_permission
def show_snapshot(
    request: HttpRequest, reader: HistoryReader, entity: EntityKind, id: str, version: int
) -> HttpResponse:
    """Show one version. If it is missing, answer 404 and say why.

    ?at= is the moment of the version. Without it, the latest version with this number is shown.
    ?as=json shows the JSON instead of the changes, and ?download=1 sends the JSON as a file.
    """
    moment = links.parse_moment(request.GET.get(links.AT))
    found_version = timeline.fetch_version(reader, entity, id, version, CHANGES, moment)
    keys = sorted(timeline.fetch_keys(reader, entity, [id]).get(id, ()))
    same_number = page_head.find_other_versions(keys, found_version)
    if "download" in request.GET:
        response = HttpResponse(
            format_indented(found_version.snapshot), content_type="application/json; charset=utf-8"
        )
        return as_file(response, f"{entity.name}-{id}-v{version}.json")
    previous = found_version.previous_version
    following = next((key.version for key in keys if key.version > version), None)
    is_newest = keys[-1:] == [(version, found_version.updated_at)]
    return render(
        request,
        "history/snapshot.html",
        {
            **page_head.make_context(
                request,
                reader,
                entity,
                id,
                found_version,
                name=_("version {n}").format(n=version),
                is_past=not is_newest,
            ),
            **_make_version_context(request, reader, found_version),
            "unmask_links": _list_unmask_links(request, found_version),
            "same_number": same_number,
            "own_url": links.build_snapshot_url(entity, id, version, found_version.updated_at),
            "json_url": links.build_json_url(entity, id, version, found_version.updated_at),
            "previous": previous,
            "following": following,
            "following_url": ""
            if following is None
            else links.build_snapshot_url(entity, id, following),
            "previous_url": ""
            if previous is None
            else links.build_snapshot_url(entity, id, previous),
            "compare_url": ""
            if previous is None
            else links.build_compare_url(
                entity,
                id,
                {
                    "from": previous,
                    "to": version,
                    links.TO_AT: links.format_moment(found_version.updated_at),
                },
            ),
        },
    )


def _make_version_context(
    request: HttpRequest, reader: HistoryReader, version: Version
) -> dict[str, object]:
    """Return the template's variables for the version.

    Returns:
        With ?as=json: `json`, the beginning of the JSON text; `rest`, how many letters are left
        out. Otherwise: `card`, the card of the version; `items`, the fields of its snapshot, empty
        if the card already shows them.
    """
    if request.GET.get("as") == "json":
        text = format_indented(version.snapshot)
        return {"json": colour_json(text[:MOST_LETTERS]), "rest": max(0, len(text) - MOST_LETTERS)}
    address = links.build_timeline_url(version.entity, version.id)
    may_unmask = masking.has_explicit_permission(request.user, masking.UNMASK)
    quarantine_notes = open_messages.describe_by_version(
        page_completeness.get_completeness(request).load_messages(reader)
    )
    builder = CardBuilder(
        lambda card_version: links.build_timeline_url_for_maker(address, card_version, {}),
        unmask=may_unmask,
        quarantine_notes=quarantine_notes,
    )
    [card] = builder.build_cards([version])
    document = version.data if isinstance(version.data, dict) and not card["snapshot"] else {}
    return {"card": card, "items": make_items(document, builder.make_fields(version), "", 1)}


class UnmaskLink(NamedTuple):
    """A masked value, and where it can be unmasked."""

    field: str  # the names of the fields that lead to the value
    token: str  # the token, shortened
    url: str  # empty if the path is too long for an address


def _list_unmask_links(request: HttpRequest, version: Version) -> list[UnmaskLink]:
    """Return a link for each masked value of a version; none if the login may not unmask."""
    entity = version.entity
    masked_values = timeline.find_masked_values(entity, version.data)
    if not masked_values or not masking.has_explicit_permission(request.user, masking.UNMASK):
        return []
    fields = make_field_names(entity)
    return [
        UnmaskLink(
            " › ".join(get_step_names(path, version.data, fields)) or _("the whole document"),
            masking.shorten_token(token),
            links.build_unmask_url(entity, version.id, version.version, path, version.updated_at),
        )
        for path, token in masked_values.items()
    ]
