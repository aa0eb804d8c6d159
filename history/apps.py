"""The configuration of the history app: its checks, and its receivers of Django's signals."""

from django.apps import AppConfig
from django.core.checks import Tags, register
from django.db.models.signals import m2m_changed, post_delete, post_migrate, post_save
from django.utils.translation import gettext_lazy as _

from history.common.lazy import import_lazily


class HistoryConfig(AppConfig):
    name = "history"
    verbose_name = _("History")

    def ready(self) -> None:
        from django.contrib.auth.models import Group, User

        from history.models import FieldLabel

        register(import_lazily("history.store.kind_tables.report_undeclared"), Tags.database)
        post_migrate.connect(
            import_lazily("history.store.kind_tables.create_missing"), sender=self, weak=False
        )
        post_migrate.connect(
            import_lazily("history.store.catalogue.labels.load_shipped_labels"),
            sender=self,
            weak=False,
        )
        post_migrate.connect(
            import_lazily("history.store.late_list.create_rows"), sender=self, weak=False
        )
        for signal in (post_save, post_delete):
            signal.connect(
                import_lazily("history.store.catalogue.labels.forget_catalogue"),
                sender=FieldLabel,
                weak=False,
            )
        forget_permissions = import_lazily("history.policy.masking.viewer.forget_permissions")
        for relation in (User.groups, User.user_permissions, Group.permissions):
            m2m_changed.connect(forget_permissions, sender=relation.through, weak=False)
        post_save.connect(forget_permissions, sender=User, weak=False)
