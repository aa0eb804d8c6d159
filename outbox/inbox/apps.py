"""The app and its checks."""

from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _

from outbox.conf import settings_errors
from outbox.inbox.conf import conf

TAG = "inbox"
Found = list[checks.CheckMessage]


def check_settings(**_: Any) -> Found:
    """inbox.E001: settings.INBOX."""
    return settings_errors(conf, "inbox")


class InboxConfig(AppConfig):
    """Connects the checks, and imports the module `inbox` of each app: handlers are there."""

    name = "outbox.inbox"
    label = "inbox"
    verbose_name = _("Inbox")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        checks.register(check_settings, TAG)
        autodiscover_modules("inbox")
