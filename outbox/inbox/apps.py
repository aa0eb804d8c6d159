"""The app and its checks."""

from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _

from outbox.conf import settings_errors
from outbox.inbox.conf import conf
from outbox.inbox.message import handlers

TAG = "inbox"
Found = list[checks.CheckMessage]


def check_settings(**_: Any) -> Found:
    """inbox.E001: settings.INBOX."""
    return settings_errors(conf, "inbox")


def check_handlers(**_: Any) -> Found:
    """inbox.W001: nothing is processed."""
    if handlers():
        return []
    hint = "Handlers are functions with @inbox.handler('topic') in the module inbox of an app."
    return [checks.Warning("The inbox has no handler.", hint=hint, id="inbox.W001")]


class InboxConfig(AppConfig):
    """Connects the checks, and imports the module `inbox` of each app: handlers are there."""

    name = "outbox.inbox"
    label = "inbox"
    verbose_name = _("Inbox")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        checks.register(check_settings, TAG)
        checks.register(check_handlers, TAG)
        autodiscover_modules("inbox")
