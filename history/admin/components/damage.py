"""Sentences on stored versions that a page cannot show because their blocks are damaged."""

from functools import partial

from django.http import HttpRequest
from django.utils.translation import gettext as _

from history.admin.components.cards import get_kind_title
from history.store.blocks.codec import DamagedBlockError
from history.timeline import HistoryReader


def attach_damage(request: HttpRequest, reader: HistoryReader) -> None:
    """Add `damaged` to the request: a function that describes what `reader` could not read.

    The page's template calls it after the versions were read.
    """
    request.damaged = partial(describe_damage, reader)  # type: ignore[attr-defined]


def describe_damage(reader: HistoryReader) -> list[str]:
    """Return a sentence for each document and day with versions that could not be read."""
    lines = {}
    for place, error in reader.damaged.items():
        day = error.day if isinstance(error, DamagedBlockError) else None
        text = _(
            "{kind} {id}: stored versions of {day} are damaged and are not shown here. Report it to"
            " the administrator of Annals, who restores this day from a backup."
        )
        lines[place.entity_ref, day] = text.format(
            kind=get_kind_title(place.entity), id=place.id, day=day or "?"
        )
    return list(lines.values())
