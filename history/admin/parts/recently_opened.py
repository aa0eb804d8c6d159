"""The entities that were opened last, kept in the session."""

from dataclasses import dataclass

from django.http import HttpRequest

from history.admin.parts import links
from history.admin.parts.cards import title
from history.entities import BY_NAME, Entity

KEY = "opened"
MAX_OPENED = 8


@dataclass(frozen=True, slots=True)
class Opened:
    id: str
    title: str
    url: str


def remember(request: HttpRequest, entity: Entity, id: str) -> None:
    """Put an entity first. The session is written only when the order changes."""
    before = request.session.get(KEY, [])
    after = [[entity.name, id], *(one for one in before if one != [entity.name, id])][:MAX_OPENED]
    if after != before:
        request.session[KEY] = after


def opened(request: HttpRequest) -> list[Opened]:
    """Newest first."""
    return [
        Opened(id, title(BY_NAME[name]), links.landing(BY_NAME[name], id))
        for name, id in request.session.get(KEY, [])
        if name in BY_NAME
    ]
