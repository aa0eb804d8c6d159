"""The quarantine in the admin. Retrying and discarding stay with `manage.py quarantine`."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ingest.models import Quarantined

if TYPE_CHECKING:
    ReadOnly = admin.ModelAdmin[Quarantined]
else:  # Django's class takes no parameters where it runs
    ReadOnly = admin.ModelAdmin

READ_DOCUMENTS = "history.view_history"
LONGEST = 20_000
PLACE = ("topic", "topic_id", "partition", "offset", "sent")
FATE = ("status", "attempts", "seen", "again", "settled", "outcome")


class QuarantinedAdmin(ReadOnly):
    """Reason and times; the message itself only for users who may read documents, and who may read
    them whole: what is not a good message cannot be masked part by part."""

    list_display = ("id", "reason", "topic", "partition", "offset", "status", "seen")
    list_filter = ("status", "reason", "topic")
    search_fields = ("=id", "=offset", "detail")
    ordering = ("-id",)
    list_per_page = 100
    show_full_result_count = False
    actions = None
    fieldsets = [
        (None, {"fields": ["reason", "detail"]}),
        (gettext_lazy("Place"), {"fields": [PLACE]}),
        (gettext_lazy("Since then"), {"fields": [FATE]}),
        (gettext_lazy("Message"), {"fields": ["key_text", "value_text"]}),
    ]

    readonly_fields = ("reason", "detail", *PLACE, *FATE, "key_text", "value_text")

    def _never(self, *_request: object, **_object: object) -> bool:
        return False

    has_add_permission = has_change_permission = has_delete_permission = _never

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:  # noqa: ARG002
        """Only the filters of the page. `value__regex` would read hidden messages bit by bit."""
        return lookup.removesuffix("__exact") in self.list_filter

    def get_fieldsets(self, request: HttpRequest, obj: Quarantined | None = None) -> Any:
        """Without the message for users who may not read documents."""
        shown = super().get_fieldsets(request, obj)
        reads = request.user.has_perm(READ_DOCUMENTS)
        # The site is history.admin.site.admin_site.AnnalsSite.
        if reads and not self.admin_site.hides_values(request):  # type: ignore[attr-defined]
            return shown
        return shown[:-1]

    @admin.display(description=gettext_lazy("time of the message"), ordering="timestamp")
    def sent(self, message: Quarantined) -> str:
        return moment(message.timestamp)

    @admin.display(description=gettext_lazy("first seen"), ordering="first_seen")
    def seen(self, message: Quarantined) -> str:
        return moment(message.first_seen)

    @admin.display(description=gettext_lazy("next attempt"), ordering="next_attempt")
    def again(self, message: Quarantined) -> str:
        return moment(message.next_attempt)

    @admin.display(description=gettext_lazy("settled at"), ordering="settled_at")
    def settled(self, message: Quarantined) -> str:
        return moment(message.settled_at)

    @admin.display(description=gettext_lazy("Key"))
    def key_text(self, message: Quarantined) -> str:
        return readable(message.key)

    @admin.display(description=gettext_lazy("Value"))
    def value_text(self, message: Quarantined) -> str:
        return readable(message.value)


def moment(value: datetime | None) -> str:
    """A time element that annals.js converts to the browser's time zone."""
    if value is None:
        return "—"
    shown = f"{value:%Y-%m-%d %H:%M:%S} UTC"
    return format_html('<time datetime="{}" data-when="full">{}</time>', value.isoformat(), shown)


def readable(raw: bytes | memoryview | None) -> str:
    """Bytes as text. Invalid UTF-8 and unprintable characters become escapes; long text is cut."""
    if raw is None:
        return _("nothing")
    content = bytes(raw)
    text = content[:LONGEST].decode("utf-8", "backslashreplace")
    plain = "".join(
        letter if letter.isprintable() or letter == "\n" else f"\\x{ord(letter):02x}"
        for letter in text
    )
    left = len(content) - LONGEST
    if left > 0:
        plain += "\n" + ngettext("… and {n} byte more", "… and {n} bytes more", left).format(n=left)
    return plain
