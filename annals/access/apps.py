"""The access app: who may do what, how people log in, and the small tables needed for this."""

import sys

from django.apps import AppConfig
from django.conf import settings

from history.common.lazy import import_lazily


class AccessConfig(AppConfig):
    name = "annals.access"
    label = "access"

    def ready(self) -> None:
        from django.contrib.auth.signals import user_logged_out

        from history.common.signals import export_begins, opened_documents_requested
        from history.store.catalogue.labels import mark_changed

        user_logged_out.connect(
            import_lazily("annals.access.sessions.remember_provider"), weak=False
        )
        export_begins.connect(
            import_lazily("annals.access.journal.write.record_export"), weak=False
        )
        opened_documents_requested.connect(
            import_lazily("annals.access.journal.read.list_opened_timelines"), weak=False
        )
        mark_changed.connect(
            import_lazily("annals.access.journal.write.record_mark_change"), weak=False
        )
        if settings.ANNALS.need_to_know is not None:
            from history.policy import need_to_know

            try:
                need_to_know.load_rule()
            except need_to_know.UnusableRuleError as error:
                sys.exit(f"annals: {need_to_know.SETTING} is wrong: {error}. See docs/access.md.")
