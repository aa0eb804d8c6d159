"""The history app: what is kept, and how it is read."""

from django.apps import AppConfig
from django.db.models.signals import m2m_changed, post_delete, post_migrate, post_save
from django.utils.translation import gettext_lazy as _


class HistoryConfig(AppConfig):
    name = "history"
    verbose_name = _("History")

    def ready(self) -> None:
        from django.contrib.auth.models import Group, User

        from history import labels
        from history.api import permitted
        from history.masking import reader
        from history.models import FieldLabel

        post_migrate.connect(labels.load_shipped, sender=self)
        post_save.connect(labels.forget, sender=FieldLabel)
        post_delete.connect(labels.forget, sender=FieldLabel)
        for grants in (User.groups, User.user_permissions, Group.permissions):
            for forget in (permitted.forget, reader.forget):
                m2m_changed.connect(forget, sender=grants.through)
        for forget in (permitted.forget, reader.forget):
            post_save.connect(forget, sender=User)
