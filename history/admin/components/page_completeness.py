"""How complete the store is for one page: up to when Kafka was read, and what is in quarantine.

The completeness is read before the documents of the page. If a version leaves quarantine in
between, the page shows the version, and also names its message. In the other order, the page might
show neither.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from django.http import HttpRequest

from history import timeline
from history.completeness import complete_to
from history.completeness.complete_to import StoreCompleteness
from history.kinds.entities import PARTS, EntityKind
from history.store.database.prepared import FetchedRows
from history.store.quarantined_messages import NO_OPEN_MESSAGES, OpenMessages
from history.timeline import HistoryReader, OpenMessagesQuestion
from history.timeline.query import is_storable_id


@dataclass(slots=True)
class PageCompleteness:
    """The moment up to which messages about a page's documents were read, and the open messages."""

    complete: StoreCompleteness
    _question: OpenMessagesQuestion | None = None
    _rows: FetchedRows = field(default_factory=list)
    _visible_messages: OpenMessages | None = None

    def load_messages(self, reader: HistoryReader) -> OpenMessages:
        """Return the messages in quarantine that are about the documents of the page.

        Messages about documents that the viewer must not know of are left out.
        """
        if self._visible_messages is None:
            question = self._question
            self._visible_messages = (
                timeline.select_open_messages(reader, question, self._rows)
                if question
                else NO_OPEN_MESSAGES
            )
        return self._visible_messages


def read_completeness(request: HttpRequest, entity: EntityKind | None, id: str) -> None:
    """Read the completeness for the page of a document, and attach it to the request.

    If `entity` is None, the page shows the application `id` with its children.
    """
    kinds: Sequence[EntityKind] = PARTS if entity is None else [entity]
    if is_storable_id(id):
        question = OpenMessagesQuestion.about(kinds, entity, id)
        complete, rows = complete_to.read_completeness_and_messages(question)
        completeness = PageCompleteness(complete, question, rows)
    else:
        completeness = PageCompleteness(complete_to.read_completeness(kinds))
    request.page_completeness = completeness  # type: ignore[attr-defined]


def get_completeness(request: HttpRequest) -> PageCompleteness:
    """Return the completeness that read_completeness attached to the request."""
    completeness: PageCompleteness = request.page_completeness  # type: ignore[attr-defined]
    return completeness
