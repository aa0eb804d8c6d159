"""What a page lacks because its stored form is damaged, in words."""

from functools import partial

from django.http import HttpRequest
from django.utils.translation import gettext as _

from history.admin.parts.cards import title
from history.blocks.form import DamagedBlockError
from history.timeline import Reader


def tell(request: HttpRequest, reader: Reader) -> None:
    """Have the page of this request name what the reader's lists leave out."""
    request.damaged = partial(sentences, reader)  # type: ignore[attr-defined]


def sentences(reader: Reader) -> list[str]:
    """Return a sentence for each document that the reader's lists lack, whole or in part."""
    lines = {}
    for (entity, id, _key), error in reader.damaged.items():
        day = error.day if isinstance(error, DamagedBlockError) else None
        text = _(
            "{kind} {id}: stored versions of {day} are damaged and are not shown here. Report it to"
            " the administrator of Annals, who restores this day from a backup."
        )
        lines[entity, id, day] = text.format(kind=title(entity), id=id, day=day or "?")
    return list(lines.values())
