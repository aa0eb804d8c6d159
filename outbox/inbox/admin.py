"""Pages of Django's admin: which messages wait, fail or are dead, and why."""

from django.contrib import admin, messages
from django.db import router
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from outbox.inbox.models import Waiting
from outbox.inbox.queue import discard, headers_from, retry
from outbox.read_only import ReadOnly

_SHOWN_BYTES = 20_000


@admin.register(Waiting)
class WaitingAdmin(ReadOnly):
    """The messages that are not processed."""

    # What somebody decides by comes first: a narrow window cuts the last columns off.
    list_display = ("place", "state", "last_error", "attempts", "due_at", "handler", "chain",
                    "received_at")  # fmt: skip
    list_filter = ("state", "handler")
    search_fields = ("=chain", "=identity")
    ordering = ("id",)
    actions = ("retry", "discard")
    fields = ("place", "handler", "chain", "identity", "state", "sent_at", "received_at",
              "attempts", "due_at", "last_error", "shown_headers", "shown_value")  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[Waiting]:
        """The list needs no values."""
        return super().get_queryset(request).defer("value")

    @admin.display(description=_("message"), ordering="id")
    def place(self, waiting: Waiting) -> str:
        """topic/partition/offset."""
        return f"{waiting.topic}/{waiting.partition}/{waiting.offset}"

    @admin.display(description=_("headers"))
    def shown_headers(self, waiting: Waiting) -> str:
        """Name and value of each."""
        pairs = headers_from(waiting.headers)
        return "\n".join(f"{name}: {_text(value)}" for name, value in pairs)

    @admin.display(description=_("value"))
    def shown_value(self, waiting: Waiting) -> str:
        """The first bytes of it."""
        return _text(None if waiting.value is None else bytes(waiting.value))

    @admin.action(description=_("Try again now"), permissions=["change"])
    def retry(self, request: HttpRequest, chosen: QuerySet[Waiting]) -> None:
        """Have the chosen messages tried again at once."""
        count = len(retry([each.id for each in chosen], router.db_for_write(Waiting)))
        text = ngettext("%d message is tried again.", "%d messages are tried again.", count)
        self.message_user(request, text % count)

    @admin.action(description=_("Discard: the message counts as processed"), permissions=["change"])
    def discard(self, request: HttpRequest, chosen: QuerySet[Waiting]) -> None:
        """Give up those of the chosen messages that failed."""
        given = {each.id: each for each in chosen}
        discarded = discard(list(given), router.db_for_write(Waiting))
        for id in discarded:
            self.log_change(request, given[id], f"Discarded: {given[id].last_error}")
        count = len(discarded)
        text = ngettext("%d message was discarded.", "%d messages were discarded.", count) % count
        self.message_user(request, text, messages.WARNING)


def _text(value: bytes | None) -> str:
    if value is None:
        return "-"
    text = value[:_SHOWN_BYTES].decode("utf-8", "backslashreplace")
    return f"{text}… ({len(value)} B)" if len(value) > _SHOWN_BYTES else text
