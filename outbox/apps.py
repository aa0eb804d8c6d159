"""The Django app of the outbox."""

from importlib.util import find_spec

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class OutboxConfig(AppConfig):
    """The Django app of the outbox.

    It registers the system checks, and connects the signals of recorded models, and of Celery
    if Celery is installed.
    """

    name = "outbox"
    label = "outbox"
    verbose_name = _("Outbox")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from outbox.recording import author, checks, related_changes

        checks.register_checks()
        related_changes.connect_models()
        if find_spec("celery"):
            author.connect_celery_signals()
