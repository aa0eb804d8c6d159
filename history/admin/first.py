"""What the first page shows besides Django's list of models."""

from typing import Any

from django.http import HttpRequest

from history.admin import recent
from history.admin.access import PERMISSION
from history.admin.cards import title
from history.entities import ENTITIES


def first_page(request: HttpRequest) -> dict[str, Any]:
    """The search box and what was opened lately, for those who may view history."""
    if not request.user.has_perm(PERMISSION):
        return {"entities": [], "recent": [], "hide_finder": True}
    return {
        "entities": [title(entity) for entity in ENTITIES],
        "recent": recent.opened(request),
        "hide_finder": True,
    }
