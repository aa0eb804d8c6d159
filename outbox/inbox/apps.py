"""The Django app of the inbox, and the system check of settings.INBOX."""

from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _

from outbox.conf import check_conf
from outbox.inbox.conf import conf

CHECK_TAG = "inbox"
Problems = list[checks.CheckMessage]


def check_settings(**_: Any) -> Problems:
    """Check settings.INBOX (inbox.E001)."""
    return check_conf(conf, "inbox")


class InboxConfig(AppConfig):
    """The Django app of the inbox.

    It registers the system check of settings.INBOX, and imports the module `inbox` of each
    installed app. These modules define the handlers.
    """

    name = "outbox.inbox"
    label = "inbox"
    verbose_name = _("Inbox")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        checks.register(check_settings, CHECK_TAG)
        autodiscover_modules("inbox")
