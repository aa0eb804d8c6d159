"""How complete the store is for one page: up to when all was read, and what is in quarantine.

It is read before the documents of the page. So a version that comes out of quarantine meanwhile is
shown and named, and never neither.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from django.http import HttpRequest

from history import complete_to
from history.complete_to import Completeness
from history.database.prepared import Rows
from history.entities import PARTS, Entity
from history.held_messages import NO_OPEN_MESSAGES, OpenMessages
from history.timeline import OpenQuestion, Reader
from history.timeline.query import storable


@dataclass(slots=True)
class Standing:
    """What was read for a page. messages: what its reader may know; asked for once the documents
    were read."""

    complete: Completeness
    _question: OpenQuestion | None = None
    _rows: Rows = field(default_factory=list)
    _told: OpenMessages | None = None

    def messages(self, reader: Reader) -> OpenMessages:
        """Return the open messages about what the page shows."""
        if self._told is None:
            asked = self._question
            self._told = reader.open_messages(asked, self._rows) if asked else NO_OPEN_MESSAGES
        return self._told


def read(request: HttpRequest, entity: Entity | None, id: str) -> None:
    """Read it for the page of a document, or (entity None) of an application with its children."""
    kinds: Sequence[Entity] = PARTS if entity is None else [entity]
    if storable(id):
        question = OpenQuestion.about(kinds, entity, id)
        found = Standing(*_read(question))
    else:
        found = Standing(complete_to.read(kinds))
    request.standing = found  # type: ignore[attr-defined]


def _read(question: OpenQuestion) -> tuple[Completeness, OpenQuestion, Rows]:
    complete, rows = complete_to.read_with_messages(question)
    return complete, question, rows


def of(request: HttpRequest) -> Standing:
    """Return what was read for a page."""
    found: Standing = request.standing  # type: ignore[attr-defined]
    return found
