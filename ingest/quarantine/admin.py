"""The quarantine in the admin. Retrying and discarding stay with `manage.py quarantine`."""

from datetime import datetime
from typing import TYPE_CHECKING

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ingest.models import Quarantined

if TYPE_CHECKING:
    ReadOnly = admin.ModelAdmin[Quarantined]
else:  # Django's class takes no parameters where it runs
    ReadOnly = admin.ModelAdmin

# The web's database login may not read them: see annals.access.grants.
CONTENTS = ("key", "value", "headers")
PLACE = ("topic", "topic_id", "partition", "offset", "sent")
FATE = ("status", "attempts", "seen", "again", "settled", "outcome")


class QuarantinedAdmin(ReadOnly):
    """Reason and times, never the message itself: `manage.py quarantine show` has that. What is not
    a good message cannot be masked part by part."""

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
        (gettext_lazy("Message"), {"fields": ["contents"]}),
    ]

    readonly_fields = ("reason", "detail", *PLACE, *FATE, "contents")

    def _never(self, *_request: object, **_object: object) -> bool:
        return False

    has_add_permission = has_change_permission = has_delete_permission = _never

    def get_queryset(self, request: HttpRequest) -> QuerySet[Quarantined]:
        """Without the message."""
        return super().get_queryset(request).defer(*CONTENTS)

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

    @admin.display(description=gettext_lazy("Contents"))
    def contents(self, message: Quarantined) -> str:
        told = _("Not on the screens. On the server: {command}")
        return told.format(command=f"manage.py quarantine show {message.pk}")


def moment(value: datetime | None) -> str:
    """A time element that annals.js converts to the browser's time zone."""
    if value is None:
        return "—"
    shown = f"{value:%Y-%m-%d %H:%M:%S} UTC"
    return format_html('<time datetime="{}" data-when="full">{}</time>', value.isoformat(), shown)
