"""The history app: what is kept, and how it is read."""

from django.apps import AppConfig
from django.db.models.signals import post_delete, post_migrate, post_save
from django.utils.translation import gettext_lazy as _


class HistoryConfig(AppConfig):
    name = "history"
    verbose_name = _("History")

    def ready(self) -> None:
        from history import labels
        from history.models import FieldLabel

        post_migrate.connect(labels.load_shipped, sender=self)
        post_save.connect(labels.forget, sender=FieldLabel)
        post_delete.connect(labels.forget, sender=FieldLabel)
