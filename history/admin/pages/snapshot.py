"""One version at an address of its own: what it changed; its JSON, to copy and to download."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from history import masking, timeline
from history.admin.pages.view import may_view_history
from history.admin.parts import heads, held, links, standing
from history.admin.parts.cards import CardBuilder, fields_of
from history.admin.parts.change_rows import steps
from history.admin.parts.clerk.take_away import as_file
from history.admin.parts.value_html import coloured
from history.admin.parts.values import members
from history.documents.exactjson import indented
from history.entities import Entity
from history.timeline import Include, Reader, Version

CHANGES = frozenset({Include.CHANGES})
MOST_LETTERS = 200_000  # of the JSON; the file has all


@may_view_history
def page(
    request: HttpRequest, reader: Reader, entity: Entity, id: str, version: int
) -> HttpResponse:
    """?at= says which version is meant where a producer gave the number twice; without it the
    younger one. ?as=json: the JSON instead of the difference; ?download=1: as a file. 404 with a
    reason."""
    made = links.parse_moment(request.GET.get(links.AT))
    found = timeline.version(reader, entity, id, version, CHANGES, made)
    known = sorted(reader.keys(entity, [id]).get(id, ()))
    twins = heads.other_versions(known, found)
    if "download" in request.GET:
        response = HttpResponse(
            indented(found.snapshot), content_type="application/json; charset=utf-8"
        )
        return as_file(response, f"{entity.name}-{id}-v{version}.json")
    previous = found.previous_version
    following = next((each.version for each in known if each.version > version), None)
    newest = known[-1:] == [(version, found.updated_at)]
    return render(
        request,
        "history/snapshot.html",
        {
            **heads.context(
                request,
                reader,
                entity,
                id,
                found,
                name=_("version {n}").format(n=version),
                then=not newest,
            ),
            **_shown(request, reader, found),
            "hidden": _unmaskable(request, found),
            "twins": twins,
            "own_url": links.snapshot(entity, id, version, found.updated_at),
            "json_url": links.as_json(entity, id, version, found.updated_at),
            "previous": previous,
            "following": following,
            "following_url": "" if following is None else links.snapshot(entity, id, following),
            "previous_url": "" if previous is None else links.snapshot(entity, id, previous),
            "compare_url": ""
            if previous is None
            else links.compare(
                entity,
                id,
                {"from": previous, "to": version, links.TO_AT: links.moment(found.updated_at)},
            ),
        },
    )


def _shown(request: HttpRequest, reader: Reader, found: Version) -> dict[str, object]:
    """The JSON, or the version as on the timeline and its fields."""
    if request.GET.get("as") == "json":
        text = indented(found.snapshot)
        return {"json": coloured(text[:MOST_LETTERS]), "rest": max(0, len(text) - MOST_LETTERS)}
    address = links.timeline(found.entity, found.id)
    may = masking.holds(request.user, masking.UNMASK)
    others = held.twins(standing.of(request).messages(reader))
    builder = CardBuilder(lambda each: links.with_maker(address, each, {}), unmask=may, held=others)
    [card] = builder.build([found])
    document = found.data if isinstance(found.data, dict) and not card["snapshot"] else {}
    return {"card": card, "items": members(document, builder.fields(found), "", 1)}


def _unmaskable(request: HttpRequest, found: Version) -> list[tuple[str, str, str]]:
    """The masked values of a version: name, what is shown, where the reason is given. None for a
    login that may not unmask them."""
    entity = found.entity
    hidden = timeline.masked_values(entity, found.data)
    if not hidden or not masking.holds(request.user, masking.UNMASK):
        return []
    fields = fields_of(entity)
    return [
        (
            " › ".join(steps(path, found.data, fields)) or _("the whole document"),
            masking.shown(token),
            links.unmask(entity, found.id, found.version, path, found.updated_at),
        )
        for path, token in hidden.items()
    ]
