"""The app."""

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _


class InboxConfig(AppConfig):
    """Connects the checks, and imports the module `inbox` of each app: handlers are there."""

    name = "outbox.inbox"
    label = "inbox"
    verbose_name = _("Inbox")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from outbox.inbox import checks

        checks.register()
        autodiscover_modules("inbox")
