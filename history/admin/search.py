"""Search: ids in any kind of entity. One hit opens at once, several are listed."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _

from history import timeline
from history.admin import links
from history.admin.access import may_view_history
from history.admin.cards import title, utc
from history.admin.subject import subject
from history.entities import ENTITIES
from history.timeline import Query

MOST_WORDS = 40
_BETWEEN = re.compile(r"[\s,;]+")


@dataclass(frozen=True, slots=True)
class Hit:
    """One entity that was found. application_url: of a child."""

    kind: str
    id: str
    title: str
    url: str
    application_url: str
    updated_at: datetime
    utc: str


@dataclass(frozen=True, slots=True)
class Group:
    """What one of the words asked for has found."""

    query: str
    hits: Sequence[Hit]


@may_view_history
def found(request: HttpRequest) -> HttpResponse:
    """?q= may hold several ids, apart by spaces, commas or lines."""
    asked = request.GET.get("q", "").strip()
    words = list(dict.fromkeys(word for word in _BETWEEN.split(asked) if word))
    groups = [Group(word, _hits(word)) for word in words[:MOST_WORDS]]
    if len(words) == 1 and len(groups[0].hits) == 1:
        return redirect(groups[0].hits[0].url)
    notes = []
    if len(words) > MOST_WORDS:
        notes.append(_("Only the first {n} were looked up.").format(n=MOST_WORDS))
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


def _help() -> list[str]:
    """What can be asked for, a line for each kind."""
    whole = _("its whole id")
    return [f"{title(entity)}: {whole}" for entity in ENTITIES]


def _hits(word: str) -> list[Hit]:
    hits = []
    for entity in ENTITIES:
        try:
            page = timeline.page(Query(entity=entity, id=word, page_size=1, include=frozenset()))
        except timeline.NotFoundError:
            continue
        newest = page.versions[0]
        head = subject(entity, word, newest)
        hits.append(
            Hit(
                head.kind,
                word,
                head.title,
                links.landing(entity, word),
                head.application_url,
                newest.updated_at,
                utc(newest.updated_at),
            )
        )
    return hits
