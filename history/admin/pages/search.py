"""Search by id, in any kind of entity, or by business key: one hit opens at once."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _

from history import timeline
from history.admin.parts import links
from history.admin.parts.cards import fields_of, title, utc
from history.admin.parts.headline import headline
from history.admin.site.access import may_view_history
from history.entities import ENTITIES, Entity
from history.record import ChangeType
from history.timeline import Found

MAX_QUERIES = 40
MAX_TITLES = 12
PAGE = "page"
BY_ID = "id"
_BETWEEN = re.compile(r"[\s,;]+")


@dataclass(frozen=True, slots=True)
class Hit:
    """One found entity. key: the business key it was found by, empty for its id.
    application_url: of a child, else empty."""

    kind: str
    id: str
    title: str
    key: str
    deleted: bool
    url: str
    application_url: str
    updated_at: datetime
    utc: str


@dataclass(frozen=True, slots=True)
class Group:
    """What one text has found. more_url: the next page, empty where there is none."""

    query: str
    hits: Sequence[Hit]
    more_url: str


@may_view_history
def page(request: HttpRequest) -> HttpResponse:
    """?q= is one id or key, or several, separated by spaces, commas or line breaks."""
    asked = request.GET.get("q", "").strip()
    texts, notes = list(dict.fromkeys(text for text in _BETWEEN.split(asked) if text)), []
    groups = [_group(asked, request.GET.get(PAGE))] if asked else []
    if len(texts) > 1 and not groups[0].hits:
        groups = [_group(text, None) for text in texts[:MAX_QUERIES]]
        if len(texts) > MAX_QUERIES:
            notes.append(_("Only the first {n} were looked up.").format(n=MAX_QUERIES))
    elif len(groups) == 1 and len(groups[0].hits) == 1 and PAGE not in request.GET:
        return redirect(groups[0].hits[0].url)
    return render(
        request,
        "history/search.html",
        {
            **admin.site.each_context(request),
            "title": _("Search"),
            "query": asked,
            "groups": groups,
            "notes": notes,
            "nothing": not any(group.hits for group in groups),
            "help": _help(),
            "entities": [title(entity) for entity in ENTITIES],
            "hide_finder": True,
        },
    )


def _group(text: str, token: str | None) -> Group:
    try:
        results = timeline.search(text, page_token=token)
    except timeline.BadParameterError:
        return Group(text, (), "")
    hits = [_hit(one, place < MAX_TITLES) for place, one in enumerate(results.found)]
    more = urlencode({"q": text, PAGE: results.next_token}) if results.next_token else ""
    return Group(text, hits, more and f"{reverse('admin:history_search')}?{more}")


def _hit(one: Found, titled: bool) -> Hit:
    child = not one.entity.root
    return Hit(
        kind=title(one.entity),
        id=one.id,
        title=_title(one) if titled else "",
        key="" if one.key == BY_ID else _key_title(one.entity, one.key),
        deleted=one.type is ChangeType.DELETE,
        url=links.landing(one.entity, one.id),
        application_url=links.application(one.application) if child else "",
        updated_at=one.updated_at,
        utc=utc(one.updated_at),
    )


def _title(one: Found) -> str:
    try:
        return headline(timeline.version(one.entity, one.id, one.version, frozenset()).data)
    except timeline.NotFoundError:  # removed by retention since it was found
        return ""


def _key_title(entity: Entity, key: str) -> str:
    """The label of a business key: that of the field it is taken from."""
    return fields_of(entity).label(dict(entity.search).get(key, "")) or key


def _help() -> list[str]:
    """What can be searched, a line for each kind."""
    whole = _("its whole id")
    return [
        f"{title(entity)}: "
        + ", ".join([whole, *(_key_title(entity, key) for key, _pointer in entity.search)])
        for entity in ENTITIES
    ]
