"""The states of a document's next version. They follow from the rows, so no row is written for
them."""

from __future__ import annotations

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _

from outbox.models import Document

# Of a row of outbox_document: whether a relay is sending it for longer than a beat.
IN_HAND = (
    "EXISTS (SELECT FROM outbox_relay AS r WHERE jsonb_exists(r.in_hand, outbox_document.key))"
)


class State(TextChoices):
    """New: waits for a relay. Processing: a relay has handed it to Kafka. Done: Kafka confirmed
    it. Failed: Kafka refused it, and it is tried again."""

    NEW = "new", _("New")
    PROCESSING = "processing", _("Processing")
    DONE = "done", _("Done")
    FAILED = "failed", _("Failed")


def state(document: Document) -> State:
    """Of a document with the annotation `processing` (IN_HAND)."""
    if document.waiting_since is None:
        return State.DONE
    if document.attempts:
        return State.FAILED
    return State.PROCESSING if getattr(document, "processing", False) else State.NEW
