"""The page of Django's admin for the inbox: messages that wait, failed or are dead."""

from django.contrib import admin, messages
from django.db import router
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from outbox.inbox.models import Waiting
from outbox.inbox.queue import decode_headers, discard_messages, retry_messages
from outbox.operations.read_only_admin import ReadOnlyAdmin

_SHOWN_BYTES = 20_000


@admin.register(Waiting)
class WaitingAdmin(ReadOnlyAdmin):
    """The list of messages that are not processed yet."""

    # The columns needed for decisions come first, because a narrow window cuts off the last ones.
    list_display = (
        "place",
        "state",
        "last_error",
        "attempts",
        "due_at",
        "handler",
        "chain",
        "received_at",
    )
    list_filter = ("state", "handler")
    search_fields = ("=chain", "=identity")
    ordering = ("id",)
    actions = ("retry", "discard")
    fields = (
        "place",
        "handler",
        "chain",
        "identity",
        "state",
        "sent_at",
        "received_at",
        "attempts",
        "due_at",
        "last_error",
        "shown_headers",
        "shown_value",
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Waiting]:
        """Return the messages without their values, which the list does not show."""
        return super().get_queryset(request).defer("value")

    @admin.display(description=_("message"), ordering="id")
    def place(self, waiting: Waiting) -> str:
        """Return `topic/partition/offset`."""
        return f"{waiting.topic}/{waiting.partition}/{waiting.offset}"

    @admin.display(description=_("headers"))
    def shown_headers(self, waiting: Waiting) -> str:
        """Return the name and the value of each header."""
        pairs = decode_headers(waiting.headers)
        return "\n".join(f"{name}: {_format_bytes(value)}" for name, value in pairs)

    @admin.display(description=_("value"))
    def shown_value(self, waiting: Waiting) -> str:
        """Return the first bytes of the value."""
        return _format_bytes(None if waiting.value is None else bytes(waiting.value))

    @admin.action(description=_("Try again now"), permissions=["change"])
    def retry(self, request: HttpRequest, queryset: QuerySet[Waiting]) -> None:
        """Let a consumer try the selected failed messages and dead letters again at once."""
        count = len(
            retry_messages([message.id for message in queryset], router.db_for_write(Waiting))
        )
        text = ngettext("%d message is tried again.", "%d messages are tried again.", count)
        self.message_user(request, text % count)

    @admin.action(description=_("Discard: the message counts as processed"), permissions=["change"])
    def discard(self, request: HttpRequest, queryset: QuerySet[Waiting]) -> None:
        """Discard the selected failed messages and dead letters."""
        messages_by_id = {message.id: message for message in queryset}
        discarded = discard_messages(list(messages_by_id), router.db_for_write(Waiting))
        for id in discarded:
            self.log_change(
                request, messages_by_id[id], f"Discarded: {messages_by_id[id].last_error}"
            )
        count = len(discarded)
        text = ngettext("%d message was discarded.", "%d messages were discarded.", count) % count
        self.message_user(request, text, messages.WARNING)


def _format_bytes(value: bytes | None) -> str:
    if value is None:
        return "-"
    text = value[:_SHOWN_BYTES].decode("utf-8", "backslashreplace")
    return f"{text}… ({len(value)} B)" if len(value) > _SHOWN_BYTES else text
