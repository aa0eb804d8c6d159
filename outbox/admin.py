"""Pages of Django's admin: which documents wait and why."""

from typing import Any

from django.contrib import admin, messages
from django.db import router
from django.db.models import F, Q, QuerySet
from django.db.models.expressions import RawSQL
from django.http import HttpRequest
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from outbox.message import TYPES
from outbox.models import Document, Message
from outbox.read_only import ReadOnly
from outbox.status import IN_HAND, State, discard, retry, state

_SHOWN_VERSIONS = 100


class StateFilter(admin.SimpleListFilter):
    """By state."""

    title = _("state")
    parameter_name = "state"

    def lookups(self, *_: Any) -> list[tuple[str, Any]]:
        """The states and their names."""
        return [(each.value, each.label) for each in State]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:  # noqa: ARG002
        """The documents in the chosen state."""
        match self.value():
            case State.FAILED.value:
                return queryset.filter(attempts__gt=0)
            case State.PROCESSING.value:
                return queryset.filter(attempts=0, processing=True)
            case State.NEW.value:
                return queryset.filter(attempts=0, processing=False)
        return queryset


@admin.register(Document)
class DocumentAdmin(ReadOnly):
    """The documents that wait."""

    # What somebody decides by comes first: a narrow window cuts the last columns off.
    list_display = ("key", "state", "last_error", "unsent", "waiting_since", "attempts",
                    "next_attempt_at")  # fmt: skip
    list_filter = (StateFilter,)
    search_fields = ("=key",)
    ordering = ("waiting_since",)
    actions = ("retry", "discard")
    fields = ("key", "state", "sent", "version", "waiting_since", "attempts", "next_attempt_at",
              "last_error", "bucket", "versions")  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[Document]:
        """Those that wait, and whether a relay is sending them."""
        waits = Q(waiting_since__isnull=False, attempts=0) | Q(attempts__gt=0)
        processing = RawSQL(IN_HAND, [])  # noqa: S611 - our own constant
        found: QuerySet[Document] = super().get_queryset(request)
        return found.filter(waits).annotate(processing=processing)

    @admin.display(description=_("state"))
    def state(self, document: Document) -> str:
        """New, Processing or Failed."""
        return str(state(document).label)

    @admin.display(description=_("not sent"), ordering=F("version") - F("sent"))
    def unsent(self, document: Document) -> int:
        """How many versions wait."""
        return document.version - document.sent

    @admin.display(description=_("versions that wait"))
    def versions(self, document: Document) -> SafeString:
        """The first of them, with who made them and how large they are."""
        waiting = Message.objects.filter(document=document.key, version__gt=document.sent)
        rows = (
            (each.version, TYPES[each.type], each.updated_at, each.author or "", len(each.data))
            for each in waiting.order_by("version")[:_SHOWN_VERSIONS]
        )
        return format_html_join("", "<div>{} · {} · {} · {} · {} B</div>", rows)

    @admin.action(description=_("Try again now"), permissions=["change"])
    def retry(self, request: HttpRequest, chosen: QuerySet[Document]) -> None:
        """Have the chosen documents tried again at once."""
        retried = retry([each.key for each in chosen], router.db_for_write(Document))
        text = ngettext(
            "%d document is tried again.", "%d documents are tried again.", len(retried)
        )
        self.message_user(request, text % len(retried))

    @admin.action(
        description=_("Discard the next version: consumers will miss it"), permissions=["change"]
    )
    def discard(self, request: HttpRequest, chosen: QuerySet[Document]) -> None:
        """Give up the next version of those chosen documents that failed."""
        documents = {each.key: each for each in chosen}
        discarded = discard(list(documents), router.db_for_write(Document))
        for key, version in discarded.items():
            self.log_change(request, documents[key], f"Discarded version {version}.")
        count = len(discarded)
        text = ngettext("%d version was discarded.", "%d versions were discarded.", count) % count
        self.message_user(request, text, messages.WARNING)
