"""The list of quarantined messages in Django's admin.

screen.py groups these messages by reason, and takes requests to retry or discard them.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import get_language, gettext_lazy
from django.utils.translation import gettext as _

from history.common import clock
from history.common.moment_filter import when
from history.kinds.entities import BY_NAME
from history.store.quarantine_reasons import REASONS
from ingest.models import Quarantined
from ingest.quarantine import details, screen
from ingest.quarantine.messages import UNSETTLED

if TYPE_CHECKING:
    ReadOnly = admin.ModelAdmin[Quarantined]
else:  # at run time, Django's class does not take type parameters
    ReadOnly = admin.ModelAdmin

# Columns that the database login of the web process may not read: see annals.access.grants.
CONTENTS = ("key", "value", "headers")
# How many ids the address of the request form may have. A page of the list has a hundred messages.
MAX_MESSAGES = 500
PLACE_FIELDS = ("topic", "partition", "offset", "sent")
RETRY_FIELDS = ("status", "attempts", "seen", "next_retry", "settled", "outcome")


class GroupFilter(admin.SimpleListFilter):
    """Filters the messages by one group of the page "Quarantine", which links to this list."""

    title, parameter_name = gettext_lazy("group"), "group"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:  # noqa: ARG002
        group = self._parse_group()
        words = [
            describe_reason(group["reason"]),
            group["client_id"],
            group["field"],
            group["topic"],
        ]
        return [(str(self.value()), " · ".join(filter(None, words)))] if self.value() else []

    def queryset(
        self,
        request: HttpRequest,  # noqa: ARG002
        queryset: QuerySet[Quarantined],
    ) -> QuerySet[Quarantined]:
        if not self.value():
            return queryset
        return screen.filter_by_group(queryset.filter(status__in=UNSETTLED), self._parse_group())

    def _parse_group(self) -> dict[str, str]:
        parameters = dict(parse_qsl(str(self.value() or "")))
        return {name: parameters.get(name, "") for name in screen.GROUP_FIELDS}


class ReasonFilter(admin.AllValuesFieldListFilter):
    """Filters the messages by reason. The reasons are shown in words."""

    def choices(self, changelist: Any) -> Iterator[Any]:
        for choice in super().choices(changelist):
            yield {**choice, "display": describe_reason(str(choice["display"]))}


class QuarantinedAdmin(ReadOnly):
    """Lists the messages with reasons and times, but not their contents.

    `annals quarantine show` prints the contents on the server.
    """

    screen = "quarantine"  # the page that leads here; it has the groups of the messages
    list_display = ("why", "document", "place", "status", "seen")
    list_filter = (GroupFilter, "status", ("reason", ReasonFilter), "topic")
    search_fields = ("=id", "=offset", "entity_id__exact", "detail")
    search_help_text = gettext_lazy("id of a document, number, offset, or words of the detail")
    ordering = ("-id",)
    actions = ("ask_retry", "ask_discard")
    fieldsets = [
        (None, {"fields": ["why", "document", "translated_detail", "why_first"]}),
        (gettext_lazy("Place"), {"fields": [PLACE_FIELDS]}),
        (gettext_lazy("Since then"), {"fields": [RETRY_FIELDS]}),
        (gettext_lazy("Message"), {"fields": ["contents"]}),
    ]

    readonly_fields = (
        "why",
        "document",
        "translated_detail",
        "why_first",
        *PLACE_FIELDS,
        *RETRY_FIELDS,
        "contents",
    )

    def _never(self, *_request: object, **_object: object) -> bool:
        return False

    has_add_permission = has_change_permission = has_delete_permission = _never

    def get_queryset(self, request: HttpRequest) -> QuerySet[Quarantined]:
        """Return the messages without key, value and headers."""
        return super().get_queryset(request).defer(*CONTENTS)

    def has_ask_permission(self, request: HttpRequest) -> bool:
        """Return whether the login may request a retry or discard."""
        return request.user.has_perm("ingest.ask_quarantine")

    @admin.action(description=gettext_lazy("Retry…"), permissions=["ask"])
    def ask_retry(self, request: HttpRequest, queryset: QuerySet[Quarantined]) -> HttpResponse:  # noqa: ARG002
        return _redirect_to_request_form("retry", queryset)

    @admin.action(description=gettext_lazy("Discard…"), permissions=["ask"])
    def ask_discard(self, request: HttpRequest, queryset: QuerySet[Quarantined]) -> HttpResponse:  # noqa: ARG002
        return _redirect_to_request_form("discard", queryset)

    @admin.display(description=gettext_lazy("time of the message"), ordering="timestamp")
    def sent(self, message: Quarantined) -> str:
        return when(message.timestamp)

    @admin.display(description=gettext_lazy("reason"), ordering="reason")
    def why(self, message: Quarantined) -> str:
        return describe_reason(message.reason)

    @admin.display(description=gettext_lazy("detail"))
    def translated_detail(self, message: Quarantined) -> SafeString:
        return details.translate_detail(message.detail, message.explanation)

    @admin.display(description=gettext_lazy("document"), ordering="entity_id")
    def document(self, message: Quarantined) -> str:
        """Return kind, id and version number of the message, if it names them."""
        kind = BY_NAME.get(message.entity)
        name = kind and (kind.title_ru if get_language() == "ru" else kind.title)
        words = [name or message.entity, message.entity_id]
        if message.version is not None:
            words.append(_("version %(n)s") % {"n": message.version})
        return " ".join(filter(None, words)) or "—"

    @admin.display(description=gettext_lazy("Place"), ordering="topic")
    def place(self, message: Quarantined) -> str:
        """Return topic, partition and offset as one text."""
        return str(message)

    @admin.display(description=gettext_lazy("first reason"))
    def why_first(self, message: Quarantined) -> str:
        """Return the first reason for the quarantine, if a retry failed for a different reason."""
        first = message.first_reason
        if not first:
            return "—"
        detail = details.translate_detail(message.first_detail, message.first_explanation)
        return format_html("{}: {}", describe_reason(first), detail)

    @admin.display(description=gettext_lazy("first seen"), ordering="first_seen")
    def seen(self, message: Quarantined) -> str:
        return when(message.first_seen)

    @admin.display(description=gettext_lazy("next attempt"), ordering="next_attempt")
    def next_retry(self, message: Quarantined) -> str:
        due = when(message.next_attempt)
        if message.next_attempt is None or message.next_attempt > clock.now():
            return due
        text = _("due since {moment}; waits for {command}")
        return format_html(text, moment=due, command="annals quarantine retry")

    @admin.display(description=gettext_lazy("settled at"), ordering="settled_at")
    def settled(self, message: Quarantined) -> str:
        return when(message.settled_at)

    @admin.display(description=gettext_lazy("Contents"))
    def contents(self, message: Quarantined) -> str:
        text = _(
            "Not on the screens. On the server: {show}. To correct it: {raw}; the service sends"
            " the corrected message, then {discard}"
        )
        id = message.pk
        return format_html(
            text,
            show=_format_command(f"show {id}"),
            raw=_format_command(f"show {id} --raw > message"),
            discard=_format_command(f"discard {id} --why '...'"),
        )


def _format_command(words: str) -> str:
    return format_html("<code>annals quarantine {}</code>", words)


def _redirect_to_request_form(action: str, queryset: QuerySet[Quarantined]) -> HttpResponse:
    """Redirect to the form in which a person requests to retry or discard the selected messages."""
    ids = ",".join(
        str(id) for id in queryset.order_by("id").values_list("id", flat=True)[:MAX_MESSAGES]
    )
    query = urlencode({"action": action, "ids": ids})
    return HttpResponseRedirect(f"{reverse('admin:quarantine_ask')}?{query}")


def describe_reason(reason: str) -> str:
    """Return the words for a reason, with the code that commands and metrics use."""
    words = REASONS.get(reason)
    return f"{words} ({reason})" if words else reason
