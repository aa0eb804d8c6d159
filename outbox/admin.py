"""The page of Django's admin for the outbox: documents with unsent versions, and why these wait."""

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

from outbox.models import Document, Message
from outbox.operations.read_only_admin import ReadOnlyAdmin
from outbox.operations.status import (
    IS_IN_HAND,
    DocumentState,
    discard_next_versions,
    get_state,
    retry_documents,
)
from outbox.recording.message import TYPES

_SHOWN_VERSIONS = 100


class DocumentStateFilter(admin.SimpleListFilter):
    """A filter of documents by state: New, Processing or Failed."""

    title = _("state")
    parameter_name = "state"

    def lookups(self, *_: Any) -> list[tuple[str, Any]]:
        """Return the choices of the filter: value and label of each document state."""
        return [(state.value, state.label) for state in DocumentState]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:  # noqa: ARG002
        """Return the documents in the selected state."""
        match self.value():
            case DocumentState.FAILED.value:
                return queryset.filter(attempts__gt=0)
            case DocumentState.PROCESSING.value:
                return queryset.filter(attempts=0, processing=True)
            case DocumentState.NEW.value:
                return queryset.filter(attempts=0, processing=False)
        return queryset


@admin.register(Document)
class DocumentAdmin(ReadOnlyAdmin):
    """The list of documents with unsent versions."""

    # The columns needed for decisions come first, because a narrow window cuts off the last ones.
    list_display = (
        "key",
        "state",
        "last_error",
        "unsent",
        "waiting_since",
        "attempts",
        "next_attempt_at",
    )
    list_filter = (DocumentStateFilter,)
    search_fields = ("=key",)
    ordering = ("waiting_since",)
    actions = ("retry", "discard")
    fields = (
        "key",
        "state",
        "sent",
        "version",
        "waiting_since",
        "attempts",
        "next_attempt_at",
        "last_error",
        "bucket",
        "versions",
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Document]:
        """Return the documents with unsent versions.

        Their attribute `processing` says whether a relay is sending versions of the document.
        """
        waits = Q(waiting_since__isnull=False, attempts=0) | Q(attempts__gt=0)
        processing = RawSQL(IS_IN_HAND, [])  # noqa: S611 - our own constant
        documents: QuerySet[Document] = super().get_queryset(request)
        return documents.filter(waits).annotate(processing=processing)

    @admin.display(description=_("state"))
    def state(self, document: Document) -> str:
        """Return the state: New, Processing or Failed."""
        return str(get_state(document).label)

    @admin.display(description=_("not sent"), ordering=F("version") - F("sent"))
    def unsent(self, document: Document) -> int:
        """Return how many versions of the document are not sent yet."""
        return document.version - document.sent

    @admin.display(description=_("versions that wait"))
    def versions(self, document: Document) -> SafeString:
        """Return the oldest unsent versions, with their authors and sizes."""
        waiting = Message.objects.filter(document=document.key, version__gt=document.sent)
        rows = (
            (
                version.version,
                TYPES[version.type],
                version.updated_at,
                version.author or "",
                len(version.data),
            )
            for version in waiting.order_by("version")[:_SHOWN_VERSIONS]
        )
        return format_html_join("", "<div>{} · {} · {} · {} · {} B</div>", rows)

    @admin.action(description=_("Try again now"), permissions=["change"])
    def retry(self, request: HttpRequest, documents: QuerySet[Document]) -> None:
        """Let the relays try at once to send the selected failed documents again."""
        retried = retry_documents(
            [document.key for document in documents], router.db_for_write(Document)
        )
        text = ngettext(
            "%d document is tried again.", "%d documents are tried again.", len(retried)
        )
        self.message_user(request, text % len(retried))

    @admin.action(
        description=_("Discard the next version: consumers will miss it"), permissions=["change"]
    )
    def discard(self, request: HttpRequest, queryset: QuerySet[Document]) -> None:
        """Discard the next unsent version of each selected failed document."""
        documents = {document.key: document for document in queryset}
        discarded = discard_next_versions(list(documents), router.db_for_write(Document))
        for key, version in discarded.items():
            self.log_change(request, documents[key], f"Discarded version {version}.")
        count = len(discarded)
        text = ngettext("%d version was discarded.", "%d versions were discarded.", count) % count
        self.message_user(request, text, messages.WARNING)
