"""What the first page shows in addition to Django's list of models."""

from typing import Any

from django.http import HttpRequest

from history.admin.parts import heads
from history.admin.parts.cards import title
from history.admin.site.access import PERMISSION
from history.entities import ENTITIES


def first_page(request: HttpRequest) -> dict[str, Any]:
    """The search box and what was opened last, for logins that may view history."""
    if not request.user.has_perm(PERMISSION):
        return {"entities": [], "recent": [], "hide_finder": True}
    return {
        "entities": [title(entity) for entity in ENTITIES],
        "recent": heads.opened(request),
        "hide_finder": True,
    }
